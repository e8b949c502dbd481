"""Dynamic Key Grouping as coded by its authors and as printed, for comparison with the library's."""

import time
from collections.abc import Callable
from typing import ClassVar

from equipoise.split.dynamic_key import DynamicKeyGrouping, Rules


class DynamicKeyCoded(DynamicKeyGrouping):
    """Dynamic Key Grouping as its authors coded it.

    Guarantees
    ----------
    - A key goes to ``width(key)`` adjacent workers, at least two if there are two.
    - The width of a key changes by at most one worker per minute, for the first time a minute after the first check of
      the key.

    Differs from the paper
    ----------------------
    As the code does: the width of a key is checked once a minute instead of on every tuple, and changes by one worker;
    loads and thresholds are rounded down to whole percents; a generation with room is filled; ties are not swapped. It
    differs from the code in the hash function.

    Parameters
    ----------
    workers
        W, number of workers.
    expected_keys
        Expected number of keys: a tenth of it can be Old, 40 % Teenage, and half of it survives a cycle as Baby.
    cycle
        Seconds between two rounds of promotion; every fourth promotes to Old.
    warm_up
        Seconds before any key may get wider.
    clock
        Returns seconds; called once in each call of ``route``.
    seed
        Seed of the hash function.

    References
    ----------
    Dalabasmaz, Can: Dynamic Key Grouping: a load balancing algorithm for distributed stream processing engines.

    Examples
    --------
    >>> seconds = iter(range(1000))
    >>> splitter = DynamicKeyCoded(10, clock=lambda: next(seconds), seed=1)
    >>> for _ in range(200):
    ...     targets = splitter.route([7] * 100)
    >>> splitter.width(7)
    5
    """

    name = "dynamic-key-coded"
    memory = "keys"
    _RULES: ClassVar[Rules] = Rules(
        check_interval=60.0,
        one_step=True,
        whole_percents=True,
        fills=True,
        swaps_ties=False,
        old_every=4,
        retention=1.0,
        limit=None,
    )

    def __init__(
        self,
        workers: int,
        *,
        expected_keys: int = 100,
        cycle: float = 15.0,
        warm_up: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
        seed: int = 0,
    ) -> None:
        super().__init__(
            workers, self._RULES, expected_keys=expected_keys, cycle=cycle, warm_up=warm_up, clock=clock, seed=seed
        )


class DynamicKeyPrinted(DynamicKeyGrouping):
    """Dynamic Key Grouping as printed.

    Guarantees
    ----------
    - A key goes to ``width(key)`` adjacent workers, at least two if there are two.
    - Without ``fills`` no key is ever promoted, so none gets wider than two: algorithm 3 iterates over the keys of the
      older generation, which is empty at the start.

    Differs from the paper
    ----------------------
    Only with ``fills``: then a generation with room is filled, as in the authors' code.

    Parameters
    ----------
    workers
        W, number of workers.
    expected_keys
        Expected number of keys: a tenth of it can be Old, 40 % Teenage, and half of it survives a cycle as Baby.
    fills
        Fill generations that have room.
    cycle
        Seconds between two rounds of promotion; every fourth promotes to Old.
    warm_up
        Seconds before any key may get wider.
    clock
        Returns seconds; called once in each call of ``route``.
    seed
        Seed of the hash function.

    References
    ----------
    Dalabasmaz, Can: Dynamic Key Grouping: a load balancing algorithm for distributed stream processing engines,
    algorithms 1 to 6.

    Examples
    --------
    >>> seconds = iter(range(1000))
    >>> splitter = DynamicKeyPrinted(10, fills=True, clock=lambda: next(seconds), seed=1)
    >>> for _ in range(60):
    ...     targets = splitter.route([7] * 100)
    >>> splitter.width(7)
    5
    """

    name = "dynamic-key-printed"
    memory = "keys"

    def __init__(
        self,
        workers: int,
        *,
        expected_keys: int = 100,
        fills: bool = False,
        cycle: float = 15.0,
        warm_up: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
        seed: int = 0,
    ) -> None:
        rules = Rules(
            check_interval=-1.0,
            one_step=False,
            whole_percents=False,
            fills=fills,
            swaps_ties=True,
            old_every=4,
            retention=1.0,
            limit=None,
        )
        super().__init__(
            workers, rules, expected_keys=expected_keys, cycle=cycle, warm_up=warm_up, clock=clock, seed=seed
        )
