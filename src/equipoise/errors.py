"""Every error equipoise raises, under one root.

::

    EquipoiseError                        code
    ├── InvalidArgument   (ValueError)    INVALID_ARGUMENT    a parameter outside its range
    ├── Mismatch          (ValueError)    MISMATCH            two things that do not belong together
    ├── FormatError       (ValueError)    FORMAT
    │   ├── Damaged                       DAMAGED             truncated, altered, or not ours
    │   └── UnknownFormat                 UNKNOWN_FORMAT      written by a version this one cannot read
    ├── PlanningFailed    (RuntimeError)  PLANNING_FAILED     a planner found no plan
    ├── MissingPackage    (ImportError)   MISSING_PACKAGE     an optional package is not installed
    ├── StorageFailed     (OSError)       STORAGE_FAILED      a file could not be read or written
    │   └── AlreadyThere  (FileExistsError) ALREADY_THERE     a file that must be new exists
    ├── LogBroken         (RuntimeError)  LOG_BROKEN          a commit log with a gap, or two halves that do not fit
    ├── Fenced            (RuntimeError)  FENCED              another query has taken over this checkpoint
    ├── CheckpointInUse   (RuntimeError)  CHECKPOINT_IN_USE   a query is running on this checkpoint
    ├── UserFunctionFailed (RuntimeError) USER_FUNCTION       the user's own code raised
    ├── FeedFailed        (OSError)       FEED_FAILED         tuples cannot be received
    ├── ServerFailed      (OSError)       SERVER_FAILED       an address cannot be listened on
    ├── SparkUnavailable  (RuntimeError)  SPARK_UNAVAILABLE   pyspark or Java is missing or too old
    ├── SparkFailed       (RuntimeError)  SPARK_FAILED        Spark could not do what a command asked of it
    └── CheckFailed       (AssertionError) CHECK_FAILED       a conformance check found a broken promise

Each class is also the fitting built-in, so ``except ValueError`` keeps working. The ``code`` is stable
and meant for programs; the message says what was found, what was expected and what to do.
"""

from typing import ClassVar


class EquipoiseError(Exception):
    """Root of all errors raised by equipoise."""

    code: ClassVar[str] = "EQUIPOISE"


class InvalidArgument(EquipoiseError, ValueError):
    """A parameter lies outside its range."""

    code = "INVALID_ARGUMENT"


class Mismatch(EquipoiseError, ValueError):
    """Two objects that do not belong together were combined."""

    code = "MISMATCH"


class FormatError(EquipoiseError, ValueError):
    """Stored bytes cannot be used."""

    code = "FORMAT"


class Damaged(FormatError):
    """Stored bytes are truncated, altered, or were never ours."""

    code = "DAMAGED"


class UnknownFormat(FormatError):
    """Stored bytes carry a format version that this release cannot read."""

    code = "UNKNOWN_FORMAT"


class PlanningFailed(EquipoiseError, RuntimeError):
    """A planner found no plan that meets its constraints."""

    code = "PLANNING_FAILED"


class MissingPackage(EquipoiseError, ImportError):
    """An optional package is not installed."""

    code = "MISSING_PACKAGE"


class StorageFailed(EquipoiseError, OSError):
    """A file could not be read or written."""

    code = "STORAGE_FAILED"


class AlreadyThere(StorageFailed, FileExistsError):
    """A file that must be new exists."""

    code = "ALREADY_THERE"


class LogBroken(EquipoiseError, RuntimeError):
    """A commit log has a gap, or does not fit what belongs to it."""

    code = "LOG_BROKEN"


class Fenced(EquipoiseError, RuntimeError):
    """Another query has taken over this checkpoint; this one must stop."""

    code = "FENCED"


class CheckpointInUse(EquipoiseError, RuntimeError):
    """A query is running on this checkpoint."""

    code = "CHECKPOINT_IN_USE"


class UserFunctionFailed(EquipoiseError, RuntimeError):
    """The user's own code raised."""

    code = "USER_FUNCTION"


class FeedFailed(EquipoiseError, OSError):
    """Tuples cannot be received."""

    code = "FEED_FAILED"


class ServerFailed(EquipoiseError, OSError):
    """An address cannot be listened on."""

    code = "SERVER_FAILED"


class SparkUnavailable(EquipoiseError, RuntimeError):
    """PySpark or Java is missing or too old."""

    code = "SPARK_UNAVAILABLE"


class SparkFailed(EquipoiseError, RuntimeError):
    """Spark could not do what a command asked of it."""

    code = "SPARK_FAILED"


class CheckFailed(EquipoiseError, AssertionError):
    """A conformance check found a promise that does not hold."""

    code = "CHECK_FAILED"
