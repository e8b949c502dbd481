"""Names that the shell completes."""

from equipoise.plan import PLANNERS


def planners(incomplete: str) -> list[str]:
    """Planners."""
    return [name for name in PLANNERS if name.startswith(incomplete)]
