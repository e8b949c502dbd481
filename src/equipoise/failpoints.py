"""Named points of the protocol at which a test can kill the process.

The environment variable ``EQUIPOISE_FAILPOINT`` holds ``name`` or ``name:count``. The process kills itself, as by
``kill -9``, when it reaches the point of that name for the count-th time. If ``EQUIPOISE_FAILPOINT_FOLDER`` names a
folder, the count runs over all processes. With ``name=raise`` the point raises ``FailpointError`` instead. Several
points are separated by commas. If the variable is not set, a point costs one lookup.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

POINTS = {
    "storage.before-name": "a file is written under a temporary name",
    "spool.before-append": "a receiver has tuples that are not stored yet",
    "spool.after-append": "tuples are on disk, not yet acknowledged to their sender",
    "spool.before-seal": "the blocks of a batch are written, the batch is not sealed",
    "spool.after-seal": "the batch is sealed, its tuples are still in the log of arrivals",
    "spool.in-forgetting": "a processed batch is partly deleted",
    "driver.in-claim": "start of a query: its epoch is written, earlier epochs still exist",
    "driver.between-stages": "start of a query: a stage is claimed, a later one is not",
    "driver.in-sweep": "start of a query: it searches for files left by killed tasks",
    "driver.before-look": "the batch is about to be looked at",
    "driver.after-look": "the batch has been looked at, or the look has failed",
    "driver.before-plan": "the plan of the batch is chosen",
    "driver.after-plan": "the plan of the batch is stored, no task has started",
    "task.start": "a task has its batch spec",
    "task.in-lookup": "a task reads keys from the files of the checkpoint, as its cache does not have their group",
    "task.in-migration": "a task has copied entries from another key group",
    "task.in-snapshot": "a task has written a snapshot into a file that is not complete",
    "task.before-files": "a task has processed its rows",
    "task.after-files": "the files of changes and snapshots have their final names",
    "task.end": "a task has written all its files",
    "driver.before-commit": "the commit record is prepared",
    "driver.in-commit": "the commit record is written, the claim is not yet checked again",
    "driver.late-commit": "the commit record of a query that was taken over exists, and counts",
    "driver.after-commit": "the batch is committed",
    "driver.before-sink": "the batch is not delivered",
    "driver.before-stage": "a stage has committed the batch, the next one has not begun it",
    "driver.after-stage": "all later stages have done the batch",
    "driver.before-list": "the transformed rows are in files that no list names",
    "driver.after-list": "a list names the files of the transformed rows, none is copied",
    "driver.after-sink": "the batch is delivered, Spark has not recorded it yet",
    "driver.before-summary": "the log is about to be summarised",
    "driver.in-summary": "the summary is written, the batch log is not",
    "driver.after-summary": "the batch log is written",
    "driver.in-forgetting": "some records are deleted",
    "driver.before-garbage": "unused files are about to be deleted",
    "driver.in-garbage": "some unused files are deleted",
    "driver.after-garbage": "all unused files are deleted",
    "compact.before-summary": "compaction: the snapshots are written, nothing refers to them",
    "compact.after-summary": "compaction: the summary refers to the snapshots, nothing is deleted",
    "compact.in-garbage": "compaction: changes are deleted, earlier snapshots are not",
}
"""All points, roughly in the order of a batch, and the state of the protocol at each."""

watchers: list[Callable[[str], None]] = []
"""Functions that are called with the name of every point that is reached."""

_reached: dict[str, int] = {}


class FailpointError(Exception):
    """Raised by a point that is set to ``raise``."""


def failpoint(name: str) -> None:
    """Kill the process, or raise, if ``EQUIPOISE_FAILPOINT`` names this point; else do nothing."""
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
