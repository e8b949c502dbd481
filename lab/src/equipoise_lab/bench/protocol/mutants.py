"""Four defects, three of which the protocol once had; the simulation must find each of them.

| mutant | the defect |
|---|---|
| s1 | a sink replaces what it delivered before: it deletes the batch's folder, then reads the committed files |
| s2 | a commit does not know the offsets of its batch, and Spark's files are not synced |
| s3 | a commit names its plan without a digest |
| s4 | the halves of a checkpoint are not compared; Spark's files are synced |
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest import mock

from equipoise.names import unique_name
from equipoise.plan import Plan
from equipoise.spark.stream.delivery import Delivery
from equipoise.spark.stream.sinks import ParquetFiles
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.halves import SparkHalf


@contextmanager
def replacing_sink() -> Iterator[None]:
    """Mutant s1."""

    def deliver(self: ParquetFiles, delivery: Delivery) -> None:
        target, folder = self._target, f"batch={delivery.batch}"
        target.delete_folder(folder)
        for file in delivery.files:
            target.write(f"{folder}/{unique_name()}", delivery.storage.read(file.path))

    with mock.patch.object(ParquetFiles, "deliver", deliver):
        yield


@contextmanager
def forgotten_offsets() -> Iterator[None]:
    """Mutant s2."""
    with (
        mock.patch.object(SparkHalf, "require_same"),
        mock.patch.object(SparkHalf, "sync"),
        mock.patch.object(SparkHalf, "require"),
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


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "s1": replacing_sink,
    "s2": forgotten_offsets,
    "s3": trusted_plans,
    "s4": trusted_halves,
}
"""By name."""
