"""Translates Spark's exceptions of a query into the errors of equipoise that caused them.

Spark reports a failure in a batch as text: its own words, a Python traceback, and the exception with its message. The
text differs between Classic, where the batch runs in the driver's process, and Connect, where it runs in another one.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException, PythonException, StreamingQueryException

from equipoise import errors
from equipoise.errors import EquipoiseError, LogBrokenError

_QUERY = "\n=== Streaming Query ==="  # Spark's description of the query follows the failure, and then the JVM's trace
_BATCH = re.compile(
    r'^.*Traceback \(most recent call last\):\n  File "[^"\n]*\b(?:py4j/clientserver|foreach_batch_worker)\.py"',
    re.MULTILINE,
)
"""First frame of a batch, on Classic and Connect. Tracebacks of handled exceptions come before it."""
_OURS = re.compile(r"^equipoise\.errors\.(\w+): ", re.MULTILINE)
_CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|java\.lang\.InterruptedException")
_MISSING_LIST = re.compile(r"terminated with exception: (batch \d+ doesn't exist)")
"""Spark's refusal of a file source whose list of files is missing; its lists are numbered, and called batches here."""
_STATES = re.compile(r"(\s*SQLSTATE: \w+)+\s*\Z")


def translated(failure: PySparkException) -> PySparkException | EquipoiseError:
    """Return the error of equipoise that Spark's exception reports, with Spark's text as a note; else the exception.

    Parameters
    ----------
    failure
        The exception that Spark raised.
    """
    text = str(failure)
    reported = text.partition(_QUERY)[0]
    batches = [match.start() for match in _BATCH.finditer(reported)]
    reported = reported[batches[-1] :] if batches else reported
    found = _OURS.search(reported)
    missing = _MISSING_LIST.search(text)
    if missing is not None:
        return _with_trace(
            LogBrokenError(
                "Spark's half is incomplete: a folder in spark/sources lacks the list of files of the last planned "
                f"batch (Spark says: {missing[1]}); restore the whole checkpoint, both halves, from one copy"
            ),
            text,
        )
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, EquipoiseError)):
        return failure
    return _with_trace(kind(_STATES.sub("", reported[found.end() :]).rstrip()), text)


def _with_trace(error: EquipoiseError, text: str) -> EquipoiseError:
    error.add_note(f"\nSpark's trace:\n{text}")
    return error


def is_cancelled(failure: Exception) -> bool:
    """Return whether a Spark job failed because it was cancelled, as the job of a query that is stopped is.

    Spark interrupts the thread of the query once. Whoever starts another job after that waits for its end.
    """
    return _CANCELLED.search(str(failure)) is not None


@contextmanager
def translating() -> Iterator[None]:
    """Raise the error of equipoise instead of Spark's exception that reports it."""
    try:
        yield
    except (StreamingQueryException, PythonException) as failure:
        found = translated(failure)
        if found is failure:
            raise
        raise found from None
