"""Raw results: one JSON file for each table or figure, with all that is needed to know what was run."""

import time
from pathlib import Path
from typing import Any

import msgspec

from equipoise_lab.bench.harness import Environment, environment
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.exhibit import SCALES, Exhibit, Scale
from equipoise_lab.reproduce.rows import Row
from equipoise_lab.reproduce.sources import digest


class Record(msgspec.Struct):
    """Our numbers of one table or figure, and where they come from."""

    exhibit: str
    scale: Scale
    seed: int
    parameters: dict[str, Any]
    data: list[str]
    """Recorded data that were used; where it is empty, all data were generated."""
    source: str
    """Digest of the code that was run."""
    env: Environment
    seconds: float
    rows: list[Row]


class RunRequest(msgspec.Struct, frozen=True):
    """Scale, seed and data of a run."""

    scale: Scale = "quick"
    seed: int = 1
    data: Path | None = None

    def files(self, exhibit: Exhibit) -> list[str]:
        """Recorded data that an exhibit would use, with their sizes."""
        if self.data is None:
            return []
        found = [self.data / name for name in exhibit.files if (self.data / name).is_file()]
        return [f"{path.name} ({path.stat().st_size:,} bytes)" for path in found]

    def context(self, exhibit: Exhibit) -> Context:
        """Context of an exhibit, without a progress report."""
        return Context(exhibit.parameters(self.scale), self.seed, self.data)


def path_of(folder: Path, exhibit: Exhibit) -> Path:
    """File of the raw results of an exhibit."""
    return folder / "raw" / f"{exhibit.name.replace('/', '-')}.json"


def load(folder: Path, exhibit: Exhibit) -> Record | None:
    """Result of an exhibit in a folder; ``None`` without one, or if other code made it."""
    try:
        record = msgspec.json.decode(path_of(folder, exhibit).read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.DecodeError):  # absent, or of another release: either way it has to be run
        return None
    return record if record.source == digest(exhibit.module) else None


def answers(record: Record, exhibit: Exhibit, request: RunRequest) -> bool:
    """Whether a result is what was asked for, or the same at a larger scale."""
    return (
        SCALES.index(record.scale) >= SCALES.index(request.scale)
        and record.seed == request.seed
        and record.data == request.files(exhibit)
        and record.parameters == _plain(exhibit.parameters(record.scale))
    )


def run(exhibit: Exhibit, request: RunRequest, context: Context) -> Record:
    """Run an exhibit and put its numbers with what they come from."""
    source, env = digest(exhibit.module), environment(request.seed)  # whatever becomes of the files meanwhile
    start = time.perf_counter()
    rows = list(exhibit.run(context))
    return Record(
        exhibit=exhibit.name,
        scale=request.scale,
        seed=request.seed,
        parameters=_plain(exhibit.parameters(request.scale)),
        data=request.files(exhibit),
        source=source,
        env=env,
        seconds=round(time.perf_counter() - start, 3),
        rows=_plain(rows),
    )


def save(folder: Path, exhibit: Exhibit, record: Record) -> None:
    """Keep a result; a file that is there stays whole until the new one is."""
    path = path_of(folder, exhibit)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    unfinished.replace(path)


def _plain(value: Any) -> Any:
    """The value as it comes back from JSON, so that new and kept results are the same to checks and drawings."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_number))


def _number(value: Any) -> Any:
    """A number or array of NumPy as Python's own."""
    return value.tolist()
