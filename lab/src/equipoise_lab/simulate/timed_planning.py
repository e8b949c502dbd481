"""A planner in a process of its own, which is ended when it takes too long."""

import time
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

import numpy as np

from equipoise.arguments import at_least
from equipoise.errors import InvalidArgumentError, PlanningError
from equipoise.plan import Costs, Plan, uniform_plan
from equipoise.sketch import Histogram
from equipoise_lab.variants import make_planner

_READY, _STARTED, _DONE, _FAILED = "ready", "started", "done", "failed"
_SAMPLE = Histogram([1, 2, 3, 4, 5], [0.3, 0.2, 0.1, 0.1, 0.1])


@dataclass(frozen=True)
class Timed:
    """What came of one planning.

    Parameters
    ----------
    plan
        The plan; ``None`` if there is none.
    seconds
        Time of planning, or after which it was given up.
    trouble
        Why there is no plan; empty if there is one.
    """

    plan: Plan | None
    seconds: float
    trouble: str = ""


def _serve(connection: Connection, name: str) -> None:
    """Plan what comes in until nothing does."""
    planner = make_planner(name)
    planner.plan(uniform_plan(2), _SAMPLE)  # compiles
    connection.send(_READY)
    while True:
        try:
            stored, histogram, costs = connection.recv()
        except EOFError:
            return
        previous = Plan.from_json(stored)
        connection.send(_STARTED)
        start = time.perf_counter()
        try:
            plan = planner.plan(previous, histogram, costs=costs)
        except PlanningError as error:
            connection.send((_FAILED, time.perf_counter() - start, str(error)))
        else:
            seconds = time.perf_counter() - start
            connection.send((_DONE, seconds, plan.to_json()))


class TimedPlanning:
    """Plans with one planner, for so long at most; a planner that was given up is asked no more.

    Parameters
    ----------
    name
        One of ``equipoise_lab.variants.PLANNERS``.
    limit
        Seconds a plan may take, without starting the process and compiling.

    Examples
    --------
    >>> with TimedPlanning("uniform", limit=60) as planning:
    ...     found = planning.plan(uniform_plan(4), Histogram([7], [0.5]), Costs())
    >>> found.plan.partitions, found.trouble
    (4, '')
    """

    def __init__(self, name: str, limit: float) -> None:
        self.name = name
        self.limit = at_least("the time limit", limit, 0)
        if self.limit == 0:
            raise InvalidArgumentError("the time limit must be above 0 seconds, got 0")
        make_planner(name)  # a wrong name is told here
        self.gave_up = False
        """Whether a plan took too long."""

    def __enter__(self) -> Self:
        """Start the process."""
        context = get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, self.name), daemon=True)
        self._process.start()
        other.close()
        self._expect(_READY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process, whatever it is at."""
        self._connection.close()
        self._process.kill()
        self._process.join()

    def _expect(self, word: str) -> None:
        try:
            answer = self._connection.recv()
        except EOFError as error:
            self._process.join()
            raise PlanningError(
                f"the process of planner {self.name!r} ended with code {self._process.exitcode}; "
                "it may have run out of memory: try fewer partitions"
            ) from error
        assert answer == word  # noqa: S101 - the other end is this module

    def plan(self, previous: Plan, histogram: Histogram, costs: Costs) -> Timed:
        """Make the plan that follows ``previous``, or say why there is none.

        Parameters
        ----------
        previous, histogram, costs
            See :meth:`equipoise.plan.Planner.plan`.
        """
        if self.gave_up:
            raise InvalidArgumentError(f"planner {self.name!r} was given up; begin anew with a larger limit")
        self._connection.send((previous.to_json(), histogram, costs))
        self._expect(_STARTED)
        try:
            answer = self._connection.recv() if self._connection.poll(self.limit) else None
        except EOFError:
            self.gave_up = True
            return Timed(None, self.limit, "its process died, probably for want of memory")
        word, seconds, text = answer or (_FAILED, np.inf, "")
        if seconds > self.limit:
            self.gave_up = True
            return Timed(None, self.limit, f"gave up after {self.limit:g} s")
        if word == _FAILED:
            return Timed(None, seconds, text)
        return Timed(Plan.from_json(text), seconds)
