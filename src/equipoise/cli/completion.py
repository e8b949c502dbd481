"""Names that the shell completes."""

from equipoise.plan import PLANNERS


def planners(incomplete: str) -> list[str]:
    """Complete the name of a planner."""
    return [name for name in PLANNERS if name.startswith(incomplete)]
