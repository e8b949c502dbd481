"""Load record of a batch job: observed while the job runs, saved when it is done, and planned from by the next run.

Stored form, inside the envelope of ``equipoise.framing``, kind ``load-record``, format 1: a list of the key columns,
each as its name and its type, the name of the weight, and the bytes of ``KeyLoads``.
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import DamagedError, MismatchError, StorageError, UnknownFormatError
from equipoise.framing import seal, unseal
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.sample import Sample, Weight, warn_caller
from equipoise.spark.rows.columns import FINGERPRINT, THINNING, WEIGHT
from equipoise.spark.rows.keys import Key
from equipoise.spark.rows.task_rows import row_of_task, task_number
from equipoise.storage import Storage

OBSERVED_ROWS = 50_000
"""Number of rows that a run aims to observe; they travel to the driver with its metrics."""

_log = logging.getLogger(__name__)

_KIND, _FORMAT_VERSION = "load-record", 1
_STEPS = 1000  # the thinning of a row is sent as a whole number of these
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class LoadRecord:
    """The load record of one job: its file, its key and its weight.

    Parameters
    ----------
    path
        A file, local or any URI that ``pyarrow.fs`` knows.
    key
        Key columns, each as its name and its type: keys of other types have other fingerprints.
    weight
        Name of the weight column; empty if every row counts 1.
    """

    path: str
    key: tuple[str, ...]
    weight: str

    @classmethod
    def of(cls, path: str | os.PathLike[str], key: Key, weight: Weight) -> Self:
        """Return the record of a job with this key and weight."""
        columns = zip(key.names, key.types, strict=True)
        return cls(os.fspath(path), tuple(f"{name} {kind}" for name, kind in columns), weight.text)

    def load(self) -> KeyLoads | None:
        """Return the loads of earlier runs; ``None`` before the first.

        A record that cannot be read or is damaged is a warning, and the next run starts a new one: a run can measure
        everything in it again. A record of another job or of a newer release is refused, because saving would
        overwrite it.
        """
        try:
            storage, name = self._storage()
            if not storage.exists(name):
                return None
            key, weight, loads = unseal(_KIND, _FORMAT_VERSION, storage.read(name))
            found = KeyLoads.from_bytes(loads)
        except (StorageError, DamagedError) as error:
            warn_caller(f"the load record {self.path} is not used: {error}")
            return None
        except UnknownFormatError as error:
            raise UnknownFormatError(
                f"load record {self.path}: {error}; or remove the file to start a new record"
            ) from error
        if (tuple(key), weight) != (self.key, self.weight):
            raise MismatchError(
                f"load record {self.path} is about key {', '.join(key)} with weight {weight or 1}, but this job has "
                f"key {', '.join(self.key)} with weight {self.weight or 1}; give every job its own record"
            )
        return found

    def save(self, loads: KeyLoads) -> None:
        """Blend the loads of a run into the record; a reader sees the old record or the new one, never half of it."""
        past = self.load()
        record = loads if past is None else past.blend(loads)
        storage, name = self._storage()
        storage.write(name, seal(_KIND, _FORMAT_VERSION, [list(self.key), self.weight, record.to_bytes()]))

    def _storage(self) -> tuple[Storage, str]:
        folder, slash, name = self.path.rpartition("/")
        return Storage(folder or slash or "."), name


class Recorder:
    """Observes a run and saves its loads, in the background and without a listener.

    The observation is part of the job's own shuffle. A thread waits for it, because under Classic reading it blocks
    until the job is done, and under Connect it is empty until then.

    Guarantees
    ----------
    - A run as large as the earlier ones observes about ``OBSERVED_ROWS`` rows. The size of a run is not known while it
      runs, so from row ``expected.rows`` on, estimated from the numbers of the task and of the row within it, ever
      fewer rows are taken: a run a million times as large observes about a hundred times as many rows. Each row is
      weighted by its inverse sampling probability.
    """

    def __init__(self, record: LoadRecord, key: Key, weight: Weight, expected: KeyLoads, *, seed: int) -> None:
        self._record = record
        self._key = key
        self._weight = weight
        self._rows = max(expected.rows, OBSERVED_ROWS)
        self._threshold = expected.load / OBSERVED_ROWS
        self._beyond = expected.load / expected.rows * self._rows / OBSERVED_ROWS
        self._seed = seed
        self._observation = Observation(f"equipoise-{uuid.uuid4().hex}")
        self._done = threading.Event()
        self._is_recorded = False

    def watch(self, df: DataFrame) -> DataFrame:
        """Return the same rows, observed on their way.

        Spark interprets observed aggregates row by row, so there are as few and as simple ones as possible: lists of
        columns that are computed in generated code before, and are NULL except in the sampled rows. Totals are
        estimated from the sample.
        """
        thinning = F.col(THINNING)
        threshold = F.when(thinning <= 1, F.lit(self._threshold)).otherwise(F.lit(self._beyond) * thinning)
        chosen = F.rand(self._seed) * threshold < self._weight.column
        found = F.array(self._key.fingerprint, F.ceil(thinning * _STEPS))
        sampled = df.withColumn(THINNING, self._thinning()).withColumn(FINGERPRINT, F.when(chosen, found))
        lists = [F.collect_list(FINGERPRINT).alias("fingerprints")]
        if self._weight.text:
            sampled = sampled.withColumn(WEIGHT, F.when(F.col(FINGERPRINT).isNotNull(), self._weight.column))
            lists.append(F.collect_list(WEIGHT).alias("weights"))
        observed = sampled.drop(THINNING).observe(self._observation, *lists)
        threading.Thread(target=self._save, name="equipoise-load-record", daemon=True).start()
        return observed.drop(FINGERPRINT, WEIGHT)

    def _thinning(self) -> Column:
        """Return the estimated place of a row among all, over the number of rows of earlier runs."""
        row_id = F.monotonically_increasing_id()
        task, place = task_number(row_id), row_of_task(row_id)
        return task.cast("double") * place.cast("double") / F.lit(float(self._rows))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run is recorded; False if it was not, or not within ``timeout`` seconds."""
        return self._done.wait(timeout) and self._is_recorded

    def _save(self) -> None:
        """Wait for the metrics and save them. Monitoring never fails a job, so errors are logged."""
        try:
            metrics: dict[str, Any] = {}
            while not metrics:
                metrics = self._observation.get
                time.sleep(0 if metrics else _POLL_SECONDS)
            loads = self._loads(metrics)
            if loads.load > 0:  # a run without rows carries no information
                self._record.save(loads)
                self._is_recorded = True
        except Exception:  # noqa: BLE001 - a failed recording must not fail the user's job
            _log.warning("the run was not recorded in %s", self._record.path, exc_info=True)
        finally:
            self._done.set()

    def _loads(self, metrics: dict[str, Any]) -> KeyLoads:
        fingerprints, steps = _numbers(metrics["fingerprints"], np.int64).reshape(-1, 2).T
        weights = _numbers(metrics.get("weights", np.ones(len(fingerprints))), np.float64)
        thresholds = np.where(steps <= _STEPS, self._threshold, self._beyond * steps / _STEPS)
        loads = np.maximum(weights, thresholds)
        rows = round(float((loads / weights).sum()))  # inverse sampling probabilities
        unknown = np.empty(0, dtype=np.int32), np.empty(0, dtype=bool)
        return Sample(fingerprints, loads, weights / loads, *unknown, rows, float(loads.sum())).key_loads()


def _numbers(values: Iterable[Any], dtype: type[np.generic]) -> Any:
    return np.array(list(values), dtype=dtype)
