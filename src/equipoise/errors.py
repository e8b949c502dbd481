"""Errors that equipoise raises, under one root.

::

    EquipoiseError                               code
    ├── InvalidArgumentError   (ValueError)      INVALID_ARGUMENT     a parameter outside its range
    ├── MismatchError          (ValueError)      MISMATCH             two things that do not belong together
    ├── FormatError            (ValueError)      FORMAT
    │   ├── DamagedError                         DAMAGED              truncated, altered, or of another program
    │   └── UnknownFormatError                   UNKNOWN_FORMAT       written by a version this one cannot read
    ├── PlanningError          (RuntimeError)    PLANNING_FAILED      a planner found no plan
    ├── MissingPackageError    (ImportError)     MISSING_PACKAGE      an optional package is not installed
    ├── StorageError           (OSError)         STORAGE_FAILED       a file could not be read or written
    │   └── AlreadyExistsError (FileExistsError) ALREADY_EXISTS       a file that must be new exists
    ├── LogBrokenError         (RuntimeError)    LOG_BROKEN           a gap in the log, or two halves that differ
    ├── FencedError            (RuntimeError)    FENCED               another query has taken over the checkpoint
    ├── CheckpointInUseError   (RuntimeError)    CHECKPOINT_IN_USE    a query is running on this checkpoint
    ├── UserFunctionError      (RuntimeError)    USER_FUNCTION        a function of the user failed
    ├── FeedError              (OSError)         FEED_FAILED          tuples cannot be received
    ├── ServerError            (OSError)         SERVER_FAILED        an address cannot be listened on
    ├── SparkUnavailableError  (RuntimeError)    SPARK_UNAVAILABLE    pyspark or Java is missing or too old
    ├── SparkError             (RuntimeError)    SPARK_FAILED         Spark could not run a command
    └── CheckError             (AssertionError)  CHECK_FAILED         a conformance check failed

Each class also derives from the matching built-in exception, so ``except ValueError`` works. The ``code`` is stable
and meant for programs. The message says what was found, what was expected and what to do.
"""

from typing import ClassVar


class EquipoiseError(Exception):
    """Root of all errors raised by equipoise."""

    code: ClassVar[str] = "EQUIPOISE"


class InvalidArgumentError(EquipoiseError, ValueError):
    """A parameter lies outside its range."""

    code = "INVALID_ARGUMENT"


class MismatchError(EquipoiseError, ValueError):
    """Two objects that do not belong together were combined."""

    code = "MISMATCH"


class FormatError(EquipoiseError, ValueError):
    """Stored bytes cannot be used."""

    code = "FORMAT"


class DamagedError(FormatError):
    """Stored bytes are truncated, altered, or of another program."""

    code = "DAMAGED"


class UnknownFormatError(FormatError):
    """Stored bytes carry a format version that this release cannot read."""

    code = "UNKNOWN_FORMAT"


class PlanningError(EquipoiseError, RuntimeError):
    """A planner found no plan that meets its constraints."""

    code = "PLANNING_FAILED"


class MissingPackageError(EquipoiseError, ImportError):
    """An optional package is not installed."""

    code = "MISSING_PACKAGE"


class StorageError(EquipoiseError, OSError):
    """A file could not be read or written."""

    code = "STORAGE_FAILED"


class AlreadyExistsError(StorageError, FileExistsError):
    """A file that must be new exists."""

    code = "ALREADY_EXISTS"


class LogBrokenError(EquipoiseError, RuntimeError):
    """A commit log has a gap, or does not match Spark's own log."""

    code = "LOG_BROKEN"


class FencedError(EquipoiseError, RuntimeError):
    """Another query has taken over this checkpoint; this one must stop."""

    code = "FENCED"


class CheckpointInUseError(EquipoiseError, RuntimeError):
    """A query is running on this checkpoint."""

    code = "CHECKPOINT_IN_USE"


class UserFunctionError(EquipoiseError, RuntimeError):
    """A function of the user raised an exception, or gave a result that does not fit."""

    code = "USER_FUNCTION"


class FeedError(EquipoiseError, OSError):
    """Tuples cannot be received."""

    code = "FEED_FAILED"


class ServerError(EquipoiseError, OSError):
    """An address cannot be listened on."""

    code = "SERVER_FAILED"


class SparkUnavailableError(EquipoiseError, RuntimeError):
    """PySpark or Java is missing or too old."""

    code = "SPARK_UNAVAILABLE"


class SparkError(EquipoiseError, RuntimeError):
    """Spark could not run a command."""

    code = "SPARK_FAILED"


class CheckError(EquipoiseError, AssertionError):
    """A conformance check failed."""

    code = "CHECK_FAILED"
