"""Defects, some of which the protocol once had; the simulation must find each of them.

| mutant | the defect |
|---|---|
| s1 | the sink ``parquet`` replaces a delivered batch: it deletes its folder, then reads the committed files |
| s1_table | the sink ``table`` does so |
| s2 | a commit does not know the offsets of its batch, Spark's files are not synced, and only missing ones refused |
| s3 | a commit names its plan without a digest |
| s4 | the halves of a checkpoint are not compared; Spark's files are synced |
| s5 | a restart hands state over from the plan of the last attempt instead of that of the last commit |
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest import mock

from equipoise.errors import LogBrokenError
from equipoise.names import unique_name
from equipoise.plan import Plan
from equipoise.spark.stream.delivery import Delivery
from equipoise.spark.stream.engine import _Progress
from equipoise.spark.stream.settings import Settings
from equipoise.spark.stream.sinks import BATCH, ParquetFiles, ParquetTable
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.halves import SparkHalf
from equipoise.storage import Storage


@contextmanager
def replacing_sink() -> Iterator[None]:
    """Mutant s1."""

    def deliver(self: ParquetFiles, delivery: Delivery) -> None:
        _replace(self._target, delivery)

    with mock.patch.object(ParquetFiles, "deliver", deliver):
        yield


@contextmanager
def replacing_table() -> Iterator[None]:
    """Mutant s1_table."""

    def deliver(self: ParquetTable, delivery: Delivery) -> None:
        assert self._target is not None  # noqa: S101 - this tells the type checker
        _replace(self._target, delivery)
        delivery.empty().sparkSession.sql(f"ADD PARTITION ({BATCH} = {delivery.batch})")

    with mock.patch.object(ParquetTable, "deliver", deliver):
        yield


def _replace(target: Storage, delivery: Delivery) -> None:
    """Delete what was delivered of a batch, then copy the committed files."""
    folder = f"{BATCH}={delivery.batch}"
    target.delete_folder(folder)
    for file in delivery.files:
        target.write(f"{folder}/{unique_name()}", delivery.storage.read(file.path))


@contextmanager
def forgotten_offsets() -> Iterator[None]:
    """Mutant s2."""

    def require(self: SparkHalf, head: int, offsets: str) -> None:  # noqa: ARG001 - the names belong to the original
        if head >= 1 and self.last_planned() < 0:
            raise LogBrokenError("Spark's half is missing")

    with (
        mock.patch.object(SparkHalf, "require_same"),
        mock.patch.object(SparkHalf, "sync"),
        mock.patch.object(SparkHalf, "require", require),
    ):
        yield


@contextmanager
def trusted_halves() -> Iterator[None]:
    """Mutant s4."""
    with mock.patch.object(SparkHalf, "require_same"), mock.patch.object(SparkHalf, "require"):
        yield


@contextmanager
def trusted_plans() -> Iterator[None]:
    """Mutant s3."""

    def plan(self: Checkpoint, name: str) -> Plan:
        path = f"plans/{name}.json"
        return Plan.from_json(self.storage.read(path), source=path)

    with mock.patch.object(Checkpoint, "plan", plan):
        yield


@contextmanager
def last_attempt() -> Iterator[None]:
    """Mutant s5."""
    recover = _Progress.__init__

    def recovered(self: _Progress, settings: Settings) -> None:
        recover(self, settings)
        attempted = max(self.storage.names("plans")).removesuffix(".json")
        if int(attempted[:10]) > self.plan.version:
            self.plan = self.checkpoint.plan(attempted)

    with mock.patch.object(_Progress, "__init__", recovered):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "s1": replacing_sink,
    "s1_table": replacing_table,
    "s2": forgotten_offsets,
    "s3": trusted_plans,
    "s4": trusted_halves,
    "s5": last_attempt,
}
"""By name."""
