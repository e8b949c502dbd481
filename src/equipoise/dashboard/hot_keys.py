"""The hottest keys of a query: their share, where they are, and since when they are hot."""

from collections.abc import Iterable, Sequence

import numpy as np

from equipoise.adapt import StreamLoadRecord
from equipoise.dashboard.document import HotKey
from equipoise.dashboard.key_names import KeyNames
from equipoise.plan import Plan
from equipoise.readable import fingerprint_text, key_text

SHOWN = 20
"""Number of keys shown."""
FOLLOWED = 64
"""Number of hottest keys whose age is tracked; more than are shown, so that a key at the edge keeps its age."""


class HotRuns:
    """First batch of the current unbroken run of each key.

    Examples
    --------
    >>> runs = HotRuns()
    >>> for batch, keys in enumerate([[1, 2], [1], [1, 2]]):
    ...     runs.see(batch, keys)
    >>> runs.since
    {1: 0, 2: 2}
    """

    def __init__(self) -> None:
        self.since: dict[int, int] = {}
        self.first: int | None = None

    def see(self, batch: int, keys: Iterable[int]) -> None:
        """Record the keys of a batch; batches come in order."""
        if self.first is None:
            self.first = batch
        self.since = {key: self.since.get(key, batch) for key in keys}


class HotKeys:
    """Track the keys with most load from batch to batch."""

    def __init__(self) -> None:
        self._listed, self._isolated = HotRuns(), HotRuns()
        self._loads: StreamLoadRecord | None = None

    def see_loads(self, batch: int, stored: bytes) -> None:
        """Record the measured loads after a batch."""
        self._loads = StreamLoadRecord.from_bytes(stored) if stored else None
        self._listed.see(batch, [] if self._loads is None else self._shares(FOLLOWED)[0])

    def see_plan(self, batch: int, isolated: Iterable[int]) -> None:
        """Record the keys that the plan of a batch isolated."""
        self._isolated.see(batch, isolated)

    def shown(self, plan: Plan, last: int, names: KeyNames | None) -> list[HotKey]:
        """The hottest keys after batch ``last``, placed as ``plan`` placed that batch."""
        if self._loads is None:
            return []
        keys, shares = self._shares(SHOWN)
        called = {} if names is None else names.of(keys)
        return [
            self._described(key, share, int(partition), plan, last, called.get(key))
            for key, share, partition in zip(keys, shares, plan.assign(keys), strict=True)
        ]

    def _described(self, key: int, share: float, partition: int, plan: Plan, last: int, name: str | None) -> HotKey:
        isolated = key in plan.isolated
        runs = self._isolated if isolated else self._listed
        since = runs.since.get(key, last)
        return HotKey(
            key=key_text(key) if name is None else name,
            fingerprint=fingerprint_text(key),
            share=share,
            partition=partition,
            isolated=isolated,
            since=since,
            earlier=since == runs.first and since > 0,
            age=last - since + 1,
        )

    def _shares(self, most: int) -> tuple[Sequence[int], Sequence[float]]:
        if self._loads is None:
            return [], []
        histogram = self._loads.histogram()
        hottest = np.argsort(-histogram.shares, kind="stable")[:most]
        return histogram.fingerprints[hottest].tolist(), histogram.shares[hottest].tolist()
