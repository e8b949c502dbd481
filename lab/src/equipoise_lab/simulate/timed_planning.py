"""Planning in a separate process, which is ended when it takes too long."""

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
    """Result of one planning.

    Parameters
    ----------
    plan
        The plan; ``None`` if there is none.
    seconds
        Planning time, or the limit if it was exceeded.
    trouble
        Why there is no plan; empty if there is one.
    """

    plan: Plan | None
    seconds: float
    trouble: str = ""


def _serve(connection: Connection, name: str) -> None:
    """Solve planning problems from the connection until it is closed."""
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
    """Make plans with one planner within a time limit; after the limit was exceeded, no more plans can be made.

    Parameters
    ----------
    name
        One of ``equipoise_lab.variants.PLANNERS``.
    limit
        Seconds that a plan may take, without the start of the process and compilation.

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
        make_planner(name)  # raises for an unknown name
        self.gave_up = False
        """Whether a plan exceeded the limit."""

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
        """End the process, even while it is planning."""
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
        assert answer == word  # noqa: S101 - the sender is this module

    def plan(self, previous: Plan, histogram: Histogram, costs: Costs) -> Timed:
        """Make the next plan after ``previous``; the result says why if there is none.

        Parameters
        ----------
        previous, histogram, costs
            See :meth:`equipoise.plan.Planner.plan`.
        """
        if self.gave_up:
            raise InvalidArgumentError(
                f"planner {self.name!r} exceeded its time limit before; make a new TimedPlanning with a larger limit"
            )
        self._connection.send((previous.to_json(), histogram, costs))
        self._expect(_STARTED)
        try:
            answer = self._connection.recv() if self._connection.poll(self.limit) else None
        except EOFError:
            self.gave_up = True
            return Timed(None, self.limit, "its process ended, probably out of memory")
        word, seconds, text = answer or (_FAILED, np.inf, "")
        if seconds > self.limit:
            self.gave_up = True
            return Timed(None, self.limit, f"gave up after {self.limit:g} s")
        if word == _FAILED:
            return Timed(None, seconds, text)
        return Timed(Plan.from_json(text), seconds)
