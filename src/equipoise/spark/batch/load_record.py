"""The record of earlier runs: observed inside the job itself, saved when the job is done, planned from by the next.

Stored form, inside the envelope of ``equipoise.framing``, kind ``batch-history``, format 2: a list of the key columns,
each as its name and its type, the text of the weight, and the bytes of ``KeyLoads``.
"""

import logging
import os
import threading
import time
import uuid
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import DamagedError, MismatchError, StorageError, UnknownFormatError
from equipoise.framing import seal, unseal
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.sample import Sample, Weight
from equipoise.spark.rows.columns import FINGERPRINT, THINNING, WEIGHT
from equipoise.spark.rows.keys import Key
from equipoise.storage import Storage

OBSERVED_ROWS = 50_000
"""Wanted number of rows that a run observes of itself; they travel to the driver with its metrics."""

_log = logging.getLogger(__name__)

_KIND, _FORMAT_VERSION = "batch-history", 2
_ROWS_OF_A_TASK = 33  # bits of monotonically_increasing_id that number the rows of a task; the others number the tasks
_STEPS = 1000  # in which the thinning of a row is told
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class LoadRecord:
    """The record of one job: where it is kept and what it is about.

    Parameters
    ----------
    path
        A file, local or any URI that ``pyarrow.fs`` knows.
    key
        Key columns, each as its name and its type: keys of other types have other fingerprints.
    weight
        Text of the weight column; empty where every row counts 1.
    """

    path: str
    key: tuple[str, ...]
    weight: str

    @classmethod
    def of(cls, path: str | os.PathLike[str], key: Key, weight: Weight) -> Self:
        """The record of a job, by what it is about."""
        columns = zip(key.names, key.types, strict=True)
        return cls(os.fspath(path), tuple(f"{name} {kind}" for name, kind in columns), weight.text)

    def load(self) -> KeyLoads | None:
        """What earlier runs saw; ``None`` before the first.

        A record that cannot be read or is damaged is a warning, and the next run starts a new one: it holds nothing
        that a run cannot measure again. One of another job or of a newer release is refused, since saving would
        destroy it.
        """
        try:
            storage, name = self._storage()
            if not storage.exists(name):
                return None
            key, weight, loads = unseal(_KIND, _FORMAT_VERSION, storage.read(name))
            found = KeyLoads.from_bytes(loads)
        except (StorageError, DamagedError) as error:
            warnings.warn(f"history {self.path} is not used: {error}", RuntimeWarning, stacklevel=3)
            return None
        except UnknownFormatError as error:
            raise UnknownFormatError(
                f"history {self.path}: {error}; or remove the file to start a new history"
            ) from error
        if (tuple(key), weight) != (self.key, self.weight):
            raise MismatchError(
                f"history {self.path} is about key {', '.join(key)} with weight {weight or 1}, but this job has key "
                f"{', '.join(self.key)} with weight {self.weight or 1}; give every job a history of its own"
            )
        return found

    def save(self, loads: KeyLoads) -> None:
        """Blend the loads of a run into the record; a reader sees the old record or the new, never a part."""
        past = self.load()
        record = loads if past is None else past.blend(loads)
        storage, name = self._storage()
        storage.write(name, seal(_KIND, _FORMAT_VERSION, [list(self.key), self.weight, record.to_bytes()]))

    def _storage(self) -> tuple[Storage, str]:
        folder, slash, name = self.path.rpartition("/")
        return Storage(folder or slash or "."), name


class Recorder:
    """Watches a run and saves what it observed, in the background and without a listener.

    The observation rides on the job's own shuffle. A thread waits for it, since under Classic asking blocks until the
    job is done, and under Connect the answer is empty until then.

    Guarantees
    ----------
    - Of a run like those before about ``OBSERVED_ROWS`` rows are observed. One that is many times as large is not known
      to be so before it has run: from row ``expected.rows`` on, as far as a row can tell its place from the numbers of
      its task and in its task, fewer are taken the more there have been, so that a million times the rows are observed
      by about a hundred times the sample. A row stands for as many as it was unlikely to be taken.
    """

    def __init__(self, history: LoadRecord, key: Key, weight: Weight, expected: KeyLoads, *, seed: int) -> None:
        self._history = history
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
        """The same rows, observed on their way.

        Spark interprets observed aggregates row by row, so there are as few and as plain as possible: lists of columns
        that are computed in the generated code before, NULL but in the sampled rows. Totals are estimated from the
        sample.
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
        threading.Thread(target=self._save, name="equipoise-history", daemon=True).start()
        return observed.drop(FINGERPRINT, WEIGHT)

    def _thinning(self) -> Column:
        """The place of a row among all, as far as it can tell, over the number of rows of the runs before."""
        number = F.monotonically_increasing_id()
        task = F.shiftright(number, _ROWS_OF_A_TASK) + 1
        place = number.bitwiseAND(F.lit((1 << _ROWS_OF_A_TASK) - 1)) + 1
        return task.cast("double") * place.cast("double") / F.lit(float(self._rows))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run is recorded; False if it was not, or not within ``timeout`` seconds."""
        return self._done.wait(timeout) and self._is_recorded

    def _save(self) -> None:
        """Wait for the metrics and save them. Monitoring never fails a job: what goes wrong here is logged."""
        try:
            metrics: dict[str, Any] = {}
            while not metrics:
                metrics = self._observation.get
                time.sleep(0 if metrics else _POLL_SECONDS)
            loads = self._loads(metrics)
            if loads.load > 0:  # a run without rows says nothing of where they will be
                self._history.save(loads)
                self._is_recorded = True
        except Exception:  # noqa: BLE001 - whatever it is, the user's job goes on
            _log.warning("the run was not recorded in %s", self._history.path, exc_info=True)
        finally:
            self._done.set()

    def _loads(self, metrics: dict[str, Any]) -> KeyLoads:
        fingerprints, steps = _numbers(metrics["fingerprints"], np.int64).reshape(-1, 2).T
        weights = _numbers(metrics.get("weights", np.ones(len(fingerprints))), np.float64)
        thresholds = np.where(steps <= _STEPS, self._threshold, self._beyond * steps / _STEPS)
        loads = np.maximum(weights, thresholds)
        rows = round(float((loads / weights).sum()))  # a sampled row stands for as many as it was unlikely to be taken
        unknown = np.empty(0, dtype=np.int32), np.empty(0, dtype=bool)
        return Sample(fingerprints, loads, *unknown, rows, float(loads.sum())).key_loads()


def _numbers(values: Iterable[Any], dtype: type[np.generic]) -> Any:
    return np.array(list(values), dtype=dtype)
