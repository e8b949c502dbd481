"""Named points of the protocol where a test can kill the process.

The environment variable ``EQUIPOISE_FAILPOINT`` holds ``name`` or ``name:count``: the process kills itself, as by
``kill -9``, when it reaches the point of that name for the count-th time (over all processes, where
``EQUIPOISE_FAILPOINT_FOLDER`` names a folder to count in). With ``name=raise`` it raises instead. Several points are
separated by commas. Unset, a point costs one lookup.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

POINTS = {
    "storage.before-name": "every file: it is written, under a temporary name",
    "spool.before-append": "a receiver has tuples that are nowhere yet",
    "spool.after-append": "tuples are on disk, their sender does not know it",
    "spool.before-seal": "the blocks of a batch are written, the batch is not sealed",
    "spool.after-seal": "the batch is sealed, its tuples are in the log of arrivals still",
    "spool.in-forgetting": "a processed batch is deleted by half",
    "driver.in-claim": "a query that starts: its epoch is written, those before are there still",
    "driver.in-sweep": "a query that starts: it looks for what killed tasks have left",
    "task.start": "a task has got its order",
    "task.in-migration": "a task has copied entries from another key group",
    "task.in-snapshot": "a task has written a snapshot into its file, which is not complete",
    "task.before-files": "a task has worked through its rows",
    "task.after-files": "the files of changes and snapshots have their names",
    "task.end": "a task has written all its files",
    "driver.before-plan": "the tasks are done",
    "driver.after-plan": "the plan of the next batch is written",
    "driver.before-commit": "the record is made up",
    "driver.in-commit": "the record is written, nobody has looked whether this query still may",
    "driver.late-commit": "the record of a query that was taken over is there already, and counts",
    "driver.after-commit": "the batch has happened",
    "driver.before-sink": "nothing is delivered",
    "driver.after-sink": "the batch is delivered, Spark does not know it yet",
    "driver.before-summary": "the log is to be summarised",
    "driver.in-summary": "the summary is written, the history is not",
    "driver.after-summary": "the history is written",
    "driver.in-forgetting": "some records are deleted",
    "driver.before-garbage": "files are to be deleted",
    "driver.in-garbage": "some files are deleted",
    "driver.after-garbage": "all is done",
    "compact.before-summary": "a compaction: the snapshots are written, nothing refers to them",
    "compact.after-summary": "a compaction: the summary refers to the snapshots, nothing is deleted",
    "compact.in-garbage": "a compaction: changes are deleted, snapshots of earlier ones are not",
}
"""Every point, about in the order of a batch, and what has happened there."""

watchers: list[Callable[[str], None]] = []
"""Called with the name of every point that is reached."""

_reached: dict[str, int] = {}


class FailpointError(Exception):
    """What a point raises that was asked to."""


def failpoint(name: str) -> None:
    """Pass, unless a test wants the process to end here."""
    for watch in watchers:
        watch(name)
    wanted = os.environ.get("EQUIPOISE_FAILPOINT")
    if wanted is None:
        return
    for each in wanted.split(","):
        point, _, count = each.partition(":")
        point, _, action = point.partition("=")
        if point == name and _count(name) == int(count or 1):
            if action == "raise":
                raise FailpointError(name)
            os.kill(os.getpid(), signal.SIGKILL)


def _count(name: str) -> int:
    folder = os.environ.get("EQUIPOISE_FAILPOINT_FOLDER")
    if folder is None:
        _reached[name] = _reached.get(name, 0) + 1
        return _reached[name]
    number = 1
    while True:
        try:
            (Path(folder) / f"{name}-{number}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number
