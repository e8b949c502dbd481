"""How a committed batch reaches its sink.

A sink is a function of (DataFrame, number of the batch), or a ``FileSink``, which takes the committed files themselves.
Either may be given the last batch again after a crash, with the same rows. Neither is asked to replace anything.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from equipoise.state.log import OutputFile
from equipoise.storage import Storage


@dataclass(frozen=True)
class Delivery:
    """A committed batch on its way to the sink.

    Parameters
    ----------
    query
        Name of the query among all; it stays the same over restarts.
    batch
        Number of the batch.
    storage
        The checkpoint.
    files
        Output files of the batch, paths below the checkpoint.
    rows
        Makes a DataFrame of them.
    """

    query: str
    batch: int
    storage: Storage
    files: list[OutputFile]
    rows: Callable[[], Any]


class FileSink(ABC):
    """A sink that takes the files of a batch, without a Spark job."""

    @abstractmethod
    def deliver(self, delivery: Delivery) -> None:
        """Deliver a batch; a batch that was delivered before changes nothing."""


Sink: TypeAlias = Callable[[Any, int], None] | FileSink
"""Where the output of a batch goes."""


def deliver(sink: Sink, delivery: Delivery) -> None:
    """Hand a batch to its sink."""
    if isinstance(sink, FileSink):
        sink.deliver(delivery)
    else:
        sink(delivery.rows(), delivery.batch)
