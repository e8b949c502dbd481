"""Deliver a committed batch to its sink.

A sink is a function of (DataFrame, batch number), or a ``FileSink``, which receives the committed files. Either may
receive the last batch again after a crash or a stop, with the same committed rows. Neither has to replace anything.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from equipoise.errors import EquipoiseError, UserFunctionError
from equipoise.spark.rows.user_functions import raised_at, traced
from equipoise.state.commit import OutputFile
from equipoise.storage import Storage


@dataclass(frozen=True)
class Delivery:
    """A committed batch on its way to the sink.

    Parameters
    ----------
    batch
        Number of the batch.
    epoch
        Epoch of the query that delivers it.
    storage
        The checkpoint.
    files
        Output files of the batch, paths below the checkpoint.
    rows
        Returns a DataFrame of them, after a call of ``check``.
    empty
        Returns an empty DataFrame of their schema.
    check
        Raises an error if another query has taken over.
    """

    batch: int
    epoch: int
    storage: Storage
    files: list[OutputFile]
    rows: Callable[[], Any]
    empty: Callable[[], Any]
    check: Callable[[], None]


class FileSink(ABC):
    """A sink that takes the files of a batch, without a Spark job."""

    def prepare(self, empty: Any) -> None:  # noqa: B027 - most sinks have nothing to prepare
        """Check, before the query starts, that batches can be delivered.

        Parameters
        ----------
        empty
            DataFrame of the output schema without rows.
        """

    @abstractmethod
    def deliver(self, delivery: Delivery) -> None:
        """Deliver a batch; a batch that was delivered before changes nothing."""


Sink: TypeAlias = Callable[[Any, int], None] | FileSink
"""Where the output of a batch goes."""


def deliver(sink: Sink, delivery: Delivery) -> None:
    """Hand a batch to its sink."""
    if isinstance(sink, FileSink):
        delivery.check()
        sink.deliver(delivery)
        return
    rows = delivery.rows()  # checks, too, when they have been read
    try:
        sink(rows, delivery.batch)
    except EquipoiseError:
        raise
    except Exception as error:
        raise UserFunctionError(
            f"{type(error).__name__} in the sink{raised_at(error)}: {error}\n"
            f"Batch {delivery.batch} is committed and not delivered. Correct the sink and start the query again on the "
            f"same checkpoint: the batch is delivered first.\n{traced(error)}"
        ) from error
