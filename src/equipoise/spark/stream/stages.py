"""A keyed operator as the sink of the one before it.

An engine takes rows and the number of their batch, and remembers which number it has done. That is all that a sink must
do to be exactly-once, so the next stage of a query is the sink of the stage before. A process that dies between the
commits of two stages needs no special handling: the batch is delivered again, and the next stage runs it then, or
delivers it again if it has done so.
"""

from typing import Generic

from equipoise.failpoints import failpoint
from equipoise.spark.stream.delivery import Delivery, FileSink
from equipoise.spark.stream.engine import Engine
from equipoise.spark.stream.jobs import Rows


class NextStage(FileSink, Generic[Rows]):
    """Hands committed batches to the engine of the next stage.

    Parameters
    ----------
    engine
        Runs the batches of the next stage and delivers them to its own sink.
    """

    def __init__(self, engine: Engine[Rows]) -> None:
        self._engine = engine

    def deliver(self, delivery: Delivery) -> None:
        """Run a batch in the next stage, or let it deliver the batch again."""
        failpoint("driver.before-stage")
        self._engine(delivery.rows(), delivery.batch)
        failpoint("driver.after-stage")
