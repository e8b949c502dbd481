"""Fraction of the predicted gain that was measured: the balance predicted for a batch beside the balance measured."""

_WEIGHT = 0.5  # of the latest plan
_RECOVERY = 0.05  # part of the lost trust that a batch without a new plan restores
_LEAST = 0.01  # promised gain in imbalance below which the rounding of few rows decides


class Promises:
    """The part of the promised gain that new plans have brought, as a number from 0 to 1.

    A plan promises to lower the imbalance of its first batch from what it would have been under the plan before. Both
    are measured after the batch, over its own keys. Of a batch whose keys were seen, the promise is kept but for the
    error of the sample. A plan that follows from batches of the past may fail, because the keys have changed since.
    Then the next plan must promise more to be used. So plans of each kind have a trust of their own.

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
    >>> promises.note(promised=1.0, got=0.2)
    >>> promises.trust
    0.6
    """

    def __init__(self, trust: float = 1.0) -> None:
        self.trust = trust

    def note(self, promised: float, got: float) -> None:
        """Add a batch.

        Parameters
        ----------
        promised
            Predicted imbalance under the plan before, less that under the plan of the batch; 0 without a new plan.
        got
            The same as measured.
        """
        if promised < _LEAST:
            self.trust += _RECOVERY * (1 - self.trust)
            return
        self.trust += _WEIGHT * (min(1.0, max(0.0, got / promised)) - self.trust)
