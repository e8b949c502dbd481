"""Named points of the protocol where a test can kill the process.

The environment variable ``EQUIPOISE_FAILPOINT`` holds ``name`` or ``name:count``: the process kills itself, as by
``kill -9``, when it reaches the point of that name for the count-th time (over all processes, where
``EQUIPOISE_FAILPOINT_FOLDER`` names a folder to count in). With ``name=raise`` it raises instead. Several points are
separated by commas. Unset, a point costs one lookup.

Points, in the order of a batch::

    storage.before-name      every file: it is written, under a temporary name
    driver.in-claim          a query that starts: its epoch is written, those before are there still
    driver.in-sweep          a query that starts: it looks for what killed tasks have left
    task.start, task.in-migration, task.in-snapshot, task.before-files, task.after-files, task.end
    driver.before-plan       the tasks are done
    driver.after-plan        the plan of the next batch is written
    driver.before-commit
    driver.in-commit         the record is written, nobody has looked whether this query still may
    driver.after-commit, driver.before-sink, driver.after-sink
    driver.before-summary, driver.in-summary, driver.after-summary, driver.in-forgetting
    driver.before-garbage, driver.in-garbage, driver.after-garbage
"""

import os
import signal
from pathlib import Path

_reached: dict[str, int] = {}


class FailpointReached(Exception):
    """What a point raises that was asked to."""


def failpoint(name: str) -> None:
    """Pass, unless a test wants the process to end here."""
    wanted = os.environ.get("EQUIPOISE_FAILPOINT")
    if wanted is None:
        return
    for each in wanted.split(","):
        point, _, count = each.partition(":")
        point, _, action = point.partition("=")
        if point == name and _count(name) == int(count or 1):
            if action == "raise":
                raise FailpointReached(name)
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
