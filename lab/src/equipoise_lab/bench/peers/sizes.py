"""How much work the comparison with peers is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Sizes of all tables and curves.

    Parameters
    ----------
    ideal
        Seconds of the service in a table, if it were spread evenly over the slots.
    repeats
        Rounds of a table.
    skews
        Zipf exponents of the grouped work.
    rows, keys, partitions
        Of the grouped work.
    cheap_rows
        Rows of the grouped work without a service time.
    factors, salts
        What over-partitioning multiplies the partitions by, and parts of salting by hand.
    join_rows, join_cases
        Rows of the joins, and how many of the cases are run.
    stream_rows, stream_keys, stream_batches, stream_rounds
        Rows and keys of a batch, batches of a run, and runs.
    curve_ideal, curve_repeats
        Seconds and rounds of a point of a curve.
    curve_rows, curve_keys, curve_partitions, curve_skews
        Points of the curves of grouped work.
    curve_factors
        Over-partitioning that the curves show.
    states, state_batches
        Keys in state, and batches that touch some of them.
    executors
        Numbers of executors.
    """

    ideal: float
    repeats: int
    skews: tuple[float, ...]
    rows: int
    keys: int
    partitions: int
    cheap_rows: int
    factors: tuple[int, ...]
    salts: tuple[int, ...]
    join_rows: int
    join_cases: int
    stream_rows: int
    stream_keys: int
    stream_batches: int
    stream_rounds: int
    curve_ideal: float
    curve_repeats: int
    curve_rows: tuple[int, ...]
    curve_keys: tuple[int, ...]
    curve_partitions: tuple[int, ...]
    curve_skews: tuple[float, ...]
    curve_factors: tuple[int, ...]
    states: tuple[int, ...]
    state_batches: int
    executors: tuple[int, ...]


FULL = Sizes(
    ideal=3.0,
    repeats=7,
    skews=(1.2, 0.0),
    rows=30_000,
    keys=300,  # few groups: each costs the real cores milliseconds that no cluster would share
    partitions=16,
    cheap_rows=1_000_000,
    factors=(2, 4, 8),
    salts=(2, 4, 8, 16),
    join_rows=40_000,
    join_cases=4,
    stream_rows=200_000,
    stream_keys=17_000,
    stream_batches=4,
    stream_rounds=7,
    curve_ideal=1.5,
    curve_repeats=7,
    curve_rows=(7500, 30_000, 60_000),
    curve_keys=(100, 300, 3000),
    curve_partitions=(8, 16, 64),
    curve_skews=(0.0, 0.5, 1.0, 1.5),
    curve_factors=(4,),
    states=(10_000, 100_000, 1_000_000),
    state_batches=8,
    executors=(1, 2, 4),
)
"""Takes about two hours on two idle cores."""

QUICK = Sizes(
    ideal=1.0,
    repeats=3,
    skews=(1.2,),
    rows=10_000,
    keys=100,
    partitions=16,
    cheap_rows=200_000,
    factors=(4,),
    salts=(8,),
    join_rows=20_000,
    join_cases=1,
    stream_rows=20_000,
    stream_keys=2000,
    stream_batches=3,
    stream_rounds=1,
    curve_ideal=0.5,
    curve_repeats=1,
    curve_rows=(5000, 10_000),
    curve_keys=(50, 200),
    curve_partitions=(8, 32),
    curve_skews=(0.0, 1.5),
    curve_factors=(),
    states=(5000, 50_000),
    state_batches=3,
    executors=(1, 2),
)
"""Sized for five minutes on two idle cores."""
