"""Schedules of crashes, pauses, lost answers and power cuts through the real commit protocol; violations must be 0.

``found_s1`` and the like say whether the simulation finds the defects that are patched in; each must be 1. The
progress is kept in a file of the temporary folder, so an interrupted run of the same commit continues.
"""

import tempfile
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from equipoise_lab.bench.harness import Context, Result, environment
from equipoise_lab.bench.protocol.many import many
from equipoise_lab.bench.protocol.mutants import MUTANTS
from equipoise_lab.bench.protocol.paths import PATHS, unreached
from equipoise_lab.bench.protocol.story import first_silent, shrunk, story

SCHEDULES = 50_000
_QUICK = 600
_MOST = 1_000  # schedules within which a defect must be found


def run(context: Context) -> Result:
    """Run the schedules, then the mutants."""
    file = progress_file(context)
    seeds = range(context.seed * 1_000_000, context.seed * 1_000_000 + (_QUICK if context.quick else SCHEDULES))
    columns = TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=context.console, transient=True) as bar:
        task = bar.add_task("", total=len(seeds))
        for done in many(seeds, file):
            bar.update(task, completed=done.schedules)
    found = {}
    for name, mutant in MUTANTS.items():
        with mutant():
            silent = first_silent(range(_MOST))
            found[name] = (0, "") if silent is None else (silent[0], story(shrunk(silent[1])))
    metrics = {
        "schedules": done.schedules,
        "violations": len(done.stories),
        "schedules_per_second": done.schedules / done.seconds,
        "paths_unreached": len(unreached(done.counts)),
        **{f"found_{name}": float(count > 0) for name, (count, _) in found.items()},
        **{f"schedules_until_{name}": float(count) for name, (count, _) in found.items()},
    }
    samples: dict[str, object] = {
        "seeds": [seeds.start, seeds.stop],
        "stories": done.stories,
        "paths": {path: done.counts.get(path, 0) for path in PATHS},
        "mutants": {name: text for name, (_, text) in found.items()},
    }
    if file is not None:
        file.unlink()
    return Result(metrics, samples)


def progress_file(context: Context) -> Path | None:
    """Return the file that keeps the progress; ``None`` with uncommitted changes, which may differ between two runs."""
    here = environment(context.seed)
    if here.dirty:
        context.console.print("simulate-protocol: uncommitted changes, so an interrupted run starts again")
        return None
    kind = "quick" if context.quick else "full"
    return Path(tempfile.gettempdir()) / f"equipoise-simulate-protocol-{here.commit}-{kind}-{context.seed}.json"
