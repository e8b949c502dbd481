"""Every path of the protocol that a run of the simulation must take."""

from collections.abc import Mapping

from equipoise.failpoints import POINTS
from equipoise_lab.bench.protocol.lost_half import LOSSES
from equipoise_lab.bench.protocol.schedule import FAULTS

PATHS = (
    *(f"failpoint {point}" for point in POINTS if not point.startswith("spool.")),  # the receiver is not simulated
    *(f"fault {kind}" for kind in FAULTS),
    *(
        f"lost answer of {verb}"
        for verb in ("create", "put", "write", "link", "rename", "delete", "read", "list", "look", "sync", "spark")
    ),
    "ends with FencedError",
    "ends with StorageError",
    "ends with ConcurrentUpdateError",
    "compaction folds",
    "compaction finds nothing to fold",
    "copy restored",
    "delivered on stop",
    "plan swapped",
    "swapped plan refused",
    *(f"half lost: {how}" for how in LOSSES),
    "wrong half refused",
    "rename reports false",
    "deleted to be replaced",
    "power cut loses files",
    "stopped",
    "task ends late",
    "look",
    "look at random keys",
    "look failed",
    "look refused",
    "batch ran again under another plan",
    "task runs twice",
    "batch delivered again",
    "sink finds its file there",
)
"""By the names under which the simulation counts them."""


def unreached(counts: Mapping[str, int]) -> list[str]:
    """Paths that were not taken."""
    return [path for path in PATHS if not counts.get(path)]
