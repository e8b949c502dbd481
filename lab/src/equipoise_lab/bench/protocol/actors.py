"""Threads of which exactly one runs at a time; the seed decides which thread runs next.

A step is one operation on the store, or one failpoint. Before each step the actor that runs may lose the baton, fail,
or die. An actor that died can do nothing more: whatever it tries raises ``Crash``.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable

from equipoise_lab.bench.protocol.schedule import Schedule


def _closed_gate() -> threading.Lock:
    """A lock that starts acquired: a waiting thread continues when another thread releases it."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class Crash(BaseException):
    """The process of an actor has died; not an ``Exception``, since no handler may run in a dead process."""


class Stopped(BaseException):
    """The query is stopped by a user; not an ``Exception``, since it is not a failure of a sink or a store."""


class Actor:
    """A process, or a task that outlives its driver.

    Parameters
    ----------
    name
        For the trace.
    work
        What it does.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name, self.work = name, work
        self.is_dead = self.is_done = False
        self.paused_until = 0
        self.may_stop = False
        self.turn = _closed_gate()


class Actors:
    """Runs actors one step at a time.

    Parameters
    ----------
    schedule
        Which faults happen when.
    on_fault
        Called for faults that concern more than one operation: kind and span.
    """

    def __init__(self, schedule: Schedule, on_fault: Callable[[str, int], None]) -> None:
        self.step = 0
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        self.current: Actor | None = None
        self.failure: BaseException | None = None
        self._all: list[Actor] = []
        self._draw = random.Random(f"turns {schedule.seed}")  # noqa: S311 - as for the schedule
        self._faults = {fault.step: fault for fault in schedule.faults}
        self._on_fault = on_fault
        self._quantum = self._drawn_quantum()
        self._idle = _closed_gate()

    def note(self, text: str) -> None:
        """Write a line of the trace."""
        name = self.current.name if self.current else "world"
        self.trace.append(f"{self.step:5d} {name:<12} {text}")

    def count(self, path: str) -> None:
        """Count that a path of the code was taken."""
        self.counts[path] += 1

    def spawn(self, actor: Actor) -> None:
        """Add an actor; it waits for its turn."""
        self._all.append(actor)
        threading.Thread(target=self._run, args=(actor,), daemon=True).start()

    def live(self) -> list[Actor]:
        """Actors that have not ended."""
        return [actor for actor in self._all if not (actor.is_done or actor.is_dead)]

    def ready(self) -> list[Actor]:
        """Actors that could go on now."""
        return [actor for actor in self._all if self._is_ready(actor)]

    def _is_ready(self, actor: Actor) -> bool:
        return not (actor.is_done or actor.is_dead) and actor.paused_until <= self.step

    def kill(self, actors: list[Actor]) -> None:
        """End processes, as by ``kill -9``."""
        for actor in actors:
            actor.is_dead = True

    def run_until_idle(self, *, wake: bool = False) -> None:
        """Let actors run until none is ready; with ``wake``, those that are paused too."""
        while True:
            waiting = self.ready() or (self.live() if wake else [])
            if not waiting or self.failure is not None:
                return
            actor = self._draw.choice(waiting)
            actor.paused_until = 0
            self._give(actor)
            self._idle.acquire()

    def take_step(self, what: str) -> str | None:
        """Called by the running actor before an operation; gives the fault that the operation must play."""
        actor = self.current
        if actor is None:  # the world itself looks, between two runs
            return None
        if actor.is_dead:
            raise Crash
        self.step += 1
        self._quantum -= 1
        fault = self._faults.get(self.step)
        if fault is None:
            if self._quantum <= 0 and any(each is not actor and self._is_ready(each) for each in self._all):
                self._yield(actor, "loses its turn")
            return None
        self.note(f"FAULT {fault.kind} at {what}")
        self.count(f"fault {fault.kind}")
        if fault.kind == "crash":
            self.kill([actor])
            raise Crash
        if fault.kind == "stop" and actor.may_stop:
            raise Stopped
        if fault.kind in {"fail", "lost", "crash after"}:
            return fault.kind
        self._on_fault(fault.kind, fault.span)
        if fault.kind in {"pause", "slow"}:
            actor.paused_until = self.step + fault.span
            self._yield(actor, f"pauses for {fault.span} steps")
        if actor.is_dead:
            raise Crash
        return None

    def die(self) -> None:
        """End the running actor, after an operation that took effect."""
        assert self.current is not None  # noqa: S101 - this tells the type checker
        self.kill([self.current])
        raise Crash

    def _yield(self, actor: Actor, why: str) -> None:
        """Give the baton back and wait for the next turn."""
        self.note(why)
        self.current = None
        self._idle.release()
        actor.turn.acquire()
        if actor.is_dead:
            raise Crash

    def _give(self, actor: Actor) -> None:
        self.current = actor
        self._quantum = self._drawn_quantum()
        actor.turn.release()

    def _drawn_quantum(self) -> int:
        return self._draw.choice((1, 3, 10, 60, 200))

    def _run(self, actor: Actor) -> None:
        actor.turn.acquire()
        try:
            if not actor.is_dead:
                actor.work()
        except Crash:
            self.note("has died")
        except BaseException as error:  # noqa: BLE001 - reported by whoever runs the schedule
            self.failure = error
        actor.is_done = True
        self.current = None
        self._idle.release()

    def end(self) -> None:
        """Let the threads of all actors end, at the end of a schedule."""
        self.kill(self.live())
        for actor in self._all:
            if not actor.is_done:
                self.current = actor
                actor.turn.release()
                self._idle.acquire()
