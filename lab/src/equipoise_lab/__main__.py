"""``python -m equipoise_lab`` is the command line."""

from equipoise_lab.cli import main

if __name__ == "__main__":
    main()
