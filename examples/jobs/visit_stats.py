"""What `visits.toml` does with the visits of a host."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor


class Slowest(StatefulProcessor):
    """Counts the visits of a host, and keeps the slowest."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self.seen = handle.getValueState("seen", "visits long, slowest long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803 - Spark's own names
        """Take up the visits of a batch."""
        visits, slowest = self.seen.get() or (0, 0)
        for frame in rows:
            visits, slowest = visits + len(frame), max(slowest, int(frame["ms"].max()))
        self.seen.update((visits, slowest))
        yield pd.DataFrame({"host": [key[0]], "visits": [visits], "slowest": [slowest]})

    def close(self) -> None:
        """Nothing to clean up."""
