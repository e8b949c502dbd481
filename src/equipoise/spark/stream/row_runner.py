"""Runs a ``StatefulProcessor`` over ``Row`` objects, as Spark's ``transformWithState`` does."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from pyspark.sql.streaming.stateful_processor import TimerValues

from equipoise.spark.rows.keyed_frames import KeyedFrames, KeyedRows
from equipoise.spark.rows.pandas_rows import timer_key_shower
from equipoise.spark.rows.runs import Runs
from equipoise.spark.stream.outputs import Call, Outputs
from equipoise.spark.stream.runners import KeyShower, ProcessorRunner


class RowRunner(ProcessorRunner):
    """Runs a ``StatefulProcessor`` that takes and yields ``Row``.

    ``handleInputRows`` gets the key as a tuple and one iterator over the rows of the key. ``handleInitialState`` is
    called for each row. Values are those of Arrow's ``as_py``: a timestamp is a ``datetime`` with the session's zone, a
    struct a dict, a map a list of pairs. A yielded ``Row`` needs named fields, which are matched by name.

    Parameters
    ----------
    processor
        The user's processor.
    batch_spec
        What the tasks of the batch need to know.
    """

    def _key_showers(self) -> tuple[KeyShower, KeyShower]:
        return (lambda key: key), timer_key_shower(self._batch_spec.key_schema, None)

    def _keyed(self, rows: Iterator[Runs]) -> KeyedFrames:
        return KeyedRows(rows, self._batch_spec.key_fields)

    def _adder(self, outputs: Outputs) -> Callable[[Any, Call], None]:
        return outputs.add_row

    def _input(self, key: tuple[Any, ...], frames: Iterator[Any], times: TimerValues) -> Iterator[Any]:
        return super()._input(key, chain.from_iterable(frames), times)

    def _initial(self, key: tuple[Any, ...], frames: Iterator[Any], times: TimerValues) -> Iterator[Any]:
        return super()._initial(key, chain.from_iterable(frames), times)
