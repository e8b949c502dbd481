"""Runs many schedules in several processes, in the order of their seeds; a run can be interrupted and continued."""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from equipoise.errors import DamagedError, MismatchError
from equipoise_lab.bench.protocol.schedule import Schedule
from equipoise_lab.bench.protocol.story import shrunk, story
from equipoise_lab.bench.protocol.world import run

_CHUNK = 20  # schedules that a process runs at a time


class Progress(msgspec.Struct):
    """Results of the schedules so far.

    Parameters
    ----------
    first, end
        Seeds, ``end`` excluded.
    next
        First seed that was not run.
    seconds
        Time that the schedules took, over all runs.
    counts
        How often each path was taken.
    stories
        Of each violation, by its seed.
    """

    first: int
    end: int
    next: int
    seconds: float
    counts: dict[str, int]
    stories: dict[int, str]

    @property
    def schedules(self) -> int:
        """Number of schedules that were run."""
        return self.next - self.first


def many(seeds: range, file: Path | None = None, processes: int | None = None) -> Iterator[Progress]:
    """Run the schedules of some seeds; gives the progress after every few of them.

    Parameters
    ----------
    seeds
        One schedule each.
    file
        Where the progress is kept; a run that was interrupted goes on from there.
    processes
        How many run at a time; default one for each core.
    """
    progress = _resumed(seeds, file)
    left = range(progress.next, seeds.stop)
    chunks = [left[place : place + _CHUNK] for place in range(0, len(left), _CHUNK)]
    counts, start, before = Counter(progress.counts), time.perf_counter(), progress.seconds
    if not chunks:
        yield progress
        return
    with multiprocessing.get_context("spawn").Pool(processes or os.cpu_count()) as pool:
        for end, (taken, stories) in zip((chunk.stop for chunk in chunks), pool.imap(_run_chunk, chunks), strict=True):
            counts += taken
            progress = Progress(
                first=seeds.start,
                end=seeds.stop,
                next=end,
                seconds=before + time.perf_counter() - start,
                counts=dict(counts),
                stories=progress.stories | stories,
            )
            if file is not None:
                _keep(file, progress)
            yield progress


def _run_chunk(seeds: range) -> tuple[Counter[str], dict[int, str]]:
    counts: Counter[str] = Counter()
    stories = {}
    for seed in seeds:
        outcome = run(Schedule.of(seed))
        counts += outcome.counts
        if outcome.violation is not None:
            stories[seed] = story(shrunk(outcome))
    return counts, stories


def _resumed(seeds: range, file: Path | None) -> Progress:
    if file is None or not file.exists():
        return Progress(seeds.start, seeds.stop, seeds.start, 0.0, {}, {})
    try:
        known = msgspec.json.decode(file.read_bytes(), type=Progress)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise DamagedError(
            f"{file} does not hold the progress of a simulation: {error}; delete it to start again"
        ) from error
    if (known.first, known.end) != (seeds.start, seeds.stop):
        raise MismatchError(
            f"{file} holds the progress of the seeds {known.first}:{known.end}, not {seeds.start}:{seeds.stop}; give "
            "those, or another file"
        )
    return known


def _keep(file: Path, progress: Progress) -> None:
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_bytes(msgspec.json.encode(progress))
    temporary.replace(file)
