"""Context, result and report of a benchmark."""

import os
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from rich.console import Console
from rich.progress import track

from equipoise.errors import InvalidArgumentError

_T = TypeVar("_T")

_VERSIONS_OF = ("equipoise", "numpy", "numba", "pyspark", "pyarrow", "datasketches")


class Environment(msgspec.Struct):
    """Where and on what a benchmark ran."""

    commit: str
    dirty: bool
    versions: dict[str, str]
    cores: int
    seed: int


@dataclass(frozen=True)
class Context:
    """Options of a benchmark run.

    Parameters
    ----------
    quick
        Whether to use smaller inputs, so that it ends within a minute.
    seed
        Seed of everything random.
    data
        Folder with real data sets; ``None``: generated data only.
    progress
        File of what has run, from which an interrupted run goes on.
    accept
        Beginning of a commit whose results in that file count as those of this code.
    kafka
        ``HOST:PORT`` of a Kafka broker to measure on as well; ``None``: there is none.
    console
        Where progress is shown; never the standard output, which is for results.
    """

    quick: bool = False
    seed: int = 1
    data: Path | None = None
    progress: Path | None = None
    accept: str | None = None
    kafka: str | None = None
    console: Console = field(default_factory=lambda: Console(stderr=True))

    def repeats(self, full: int, quick: int) -> int:
        """Number of repeats, by mode."""
        return quick if self.quick else full

    def track(self, work: Iterable[_T], description: str) -> Iterator[_T]:
        """Go through ``work`` with a progress bar."""
        yield from track(list(work), description, console=self.console, transient=True)

    def file(self, name: str) -> Path | None:
        """Path of a data set, or ``None`` if no data folder was given."""
        if self.data is None:
            return None
        path = self.data / name
        if not path.is_file():
            raise InvalidArgumentError(f"{path} does not exist; --data must name the folder that holds {name}")
        return path


@dataclass(frozen=True)
class Result:
    """Measurements of a benchmark.

    Parameters
    ----------
    metrics
        The figures that are followed over time.
    samples
        The raw measurements behind them.
    """

    metrics: dict[str, float]
    samples: dict[str, object] = field(default_factory=dict)


class Report(msgspec.Struct):
    """A benchmark's result with the environment it was measured in; the JSON form."""

    benchmark: str
    metrics: dict[str, float]
    samples: dict[str, object]
    env: Environment


def environment(seed: int) -> Environment:
    """Describe this machine and this source tree."""
    versions = {"python": platform.python_version()}
    for name in _VERSIONS_OF:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    commit = _git("rev-parse", "HEAD")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Environment(commit or "unknown", bool(_git("status", "--porcelain")), versions, cores, seed)


def _git(*arguments: str) -> str:
    """Output of git in the checkout of this module; empty outside a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), *arguments]
    try:
        tracked = subprocess.run([*command[:3], "ls-files", __file__], capture_output=True, text=True, check=True)  # noqa: S603 - a fixed command
        if not tracked.stdout:
            return ""
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - a fixed command
    except (OSError, subprocess.CalledProcessError):
        return ""


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    repeats: int,
    warm_up: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, list[float]]:
    """Time all contenders once in each round; return the seconds of each.

    A slow moment of the machine then affects all of them. The order is shuffled in each round. Each contender runs
    once before the first round, uncounted, to warm up compilers and caches; where that takes long, ``warm_up`` has
    shorter forms.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in (contenders if warm_up is None else warm_up).values():
        run()
    order = random.Random(0)  # noqa: S311 - shuffles measurements
    for _ in range(repeats):
        for name in order.sample(list(contenders), len(contenders)):
            start = time.perf_counter()
            contenders[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds


class Ratio(NamedTuple):
    """Ratio of the times of two contenders in each round: its median, and the least and the most of all rounds."""

    median: float
    least: float
    most: float


def paired(one: Sequence[float], other: Sequence[float]) -> Ratio:
    """Compare two contenders round by round, so that a slow moment of the machine counts against both.

    Examples
    --------
    >>> paired([1.0, 3.0, 5.0], [2.0, 3.0, 4.0])
    Ratio(median=1.0, least=0.5, most=1.25)
    """
    ratios = [mine / theirs for mine, theirs in zip(one, other, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))


def median(values: Iterable[float]) -> float:
    """Median of the measured values."""
    return statistics.median(values)
