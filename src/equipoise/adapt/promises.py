"""Fraction of the predicted gain that was measured: the balance predicted for a batch beside the balance measured."""

from collections.abc import Mapping
from typing import Any

_WEIGHT = 0.5  # of the latest plan
_RECOVERY = 0.05  # part of the lost trust that a batch without a new plan restores
_LEAST = 0.01  # promised gain in imbalance below which the rounding of few rows decides


class Promises:
    """The part of the promised gain that new plans have brought, as a number from 0 to 1.

    A plan promises to lower the imbalance of its first batch from what it would have been under the plan before. Of a
    batch whose keys were seen, the promise is kept but for the error of the sample. A plan that follows from batches of
    the past may fail, because the keys have changed since. Then the next plan must promise more to be used.

    Guarantees
    ----------
    - Pure: equal batches in equal order give equal trust, and a restart continues from it.
    - Without new plans trust returns, so that a stream that has become steady is balanced again.

    Parameters
    ----------
    trust
        That of an earlier run; 1 for a new query.

    Examples
    --------
    >>> promises = Promises()
    >>> promises.note({"unchanged_rows": 2.0, "promised_rows": 1.0, "imbalance_rows": 1.8}, changed=True)
    >>> round(promises.trust, 2)
    0.6
    """

    def __init__(self, trust: float = 1.0) -> None:
        self.trust = trust

    def note(self, measures: Mapping[str, Any], *, changed: bool, measured: str = "imbalance_rows") -> None:
        """Add a batch.

        Parameters
        ----------
        measures
            Measures of the batch.
        measured
            Name of the measure that was promised.
        changed
            Whether its plan differs from that of the batch before.
        """
        unchanged, promised = measures.get("unchanged_rows"), measures.get("promised_rows")
        if not changed or unchanged is None or promised is None or unchanged - promised < _LEAST:
            self.trust += _RECOVERY * (1 - self.trust)
            return
        kept = (unchanged - measures[measured]) / (unchanged - promised)
        self.trust += _WEIGHT * (min(1.0, max(0.0, kept)) - self.trust)
