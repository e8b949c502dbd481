"""``python -m equipoise`` is the command line."""

from equipoise.cli import main

main()
