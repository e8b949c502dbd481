"""Read from the spool what the source has planned, and report the time of each batch to the source."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from equipoise.durations import seconds_of
from equipoise.errors import FormatError, InvalidArgumentError, MismatchError
from equipoise.microbatch.spool import Spool

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpoolClient:
    """Connects a query to its source through their spool.

    Parameters
    ----------
    interval
        Length of a batch in seconds, as the query expects it.
    folder
        The spool; ``None`` if the query was given none: then the source is not read, and no times are reported to it.
    """

    interval: float
    folder: str | None = None

    def require_trigger(self, trigger: Mapping[str, Any]) -> None:
        """Refuse a trigger that asks for fewer batches than the source makes, or that ends the query."""
        ending = [name for name in ("availableNow", "once") if trigger.get(name)]
        if ending:
            raise InvalidArgumentError(
                f"the trigger {ending[0]} processes the available rows and ends, and the source makes a batch every "
                f"{self.interval:g} seconds; use no trigger, and call stop() to end the query"
            )
        given = trigger.get("processingTime")
        if given is None:
            return
        try:
            seconds = seconds_of("trigger", given)
        except InvalidArgumentError:
            return  # Spark reads more forms of an interval, such as "0 seconds"
        if seconds > self.interval * (1 + 1e-9):
            raise InvalidArgumentError(
                f"a trigger of {given!r} takes a batch every {seconds:g} seconds, and the source makes one every "
                f"{self.interval:g}, so the query would fall behind; use no trigger, or the interval of the "
                "source"
            )

    def buckets(self) -> int | None:
        """Return the number of reduce buckets that the current batch was planned for; ``None`` without a spool."""
        if self.folder is None:
            return None
        spool = Spool(self.folder)
        tasks = spool.tasks()
        if tasks is None:
            raise MismatchError(
                f"no source uses the spool {self.folder}; give the query the spool of its source, or none"
            )
        if abs(tasks.interval - self.interval) > 1e-9:
            raise MismatchError(
                f"the source makes a batch every {tasks.interval:g} seconds, the query expects one every "
                f"{self.interval:g}; give both the same interval"
            )
        batch = spool.handed_out()
        return tasks.buckets if batch is None else int(batch.measures["buckets"])

    def is_due(self, slide: int) -> bool | None:
        """Return whether results of a window are due with the current batch; ``None`` without a spool."""
        return None if self.folder is None else Spool(self.folder).released() % slide == 0

    def report(self, batch: int, seconds: float) -> None:
        """Report to the source how long a batch took; a failure is logged and does not fail the batch."""
        if self.folder is None:
            return
        try:
            spool = Spool(self.folder)
            if spool.released():  # the first batch of a query may come before the source has any
                spool.add_time(spool.released() - 1, seconds)
        except (OSError, FormatError) as error:
            _log.warning("could not report the time of batch %d to the source: %s", batch, error)
