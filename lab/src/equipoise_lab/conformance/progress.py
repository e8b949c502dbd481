"""Keeps outcomes in a file, so that an interrupted run goes on: JSON, a line for each case and client."""

from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec

import equipoise
from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.recorded import recorded
from equipoise_lab.conformance.verdict import Client, Outcome, allowed

_RUNS = ("case.py", "harness.py", "processors.py", "verdict.py", "cases/*.py")
"""Modules beside this one that a verdict rests on."""


class Finished(msgspec.Struct):
    """Outcomes of a case.

    Parameters
    ----------
    case, client
        What ran.
    digest
        Digest of the code and of the record of Spark.
    commit
        Commit of the code.
    outcomes
        One for each form.
    """

    case: str
    client: Client
    digest: str
    commit: str
    outcomes: list[Outcome]


def digest(name: str) -> str:
    """Return a digest of everything that a verdict on a case rests on: library, cases, and record of Spark."""
    return sha256(msgspec.json.encode((_code(), recorded().get(name)))).hexdigest()[:16]


@cache
def _code() -> str:
    library, here = Path(equipoise.__file__).parent, Path(__file__).parent
    files = [*library.rglob("*.py"), *(path for pattern in _RUNS for path in here.glob(pattern))]
    code = sha256()
    for path in sorted(files):
        code.update(f"{path.name} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return code.hexdigest()


class Progress:
    """Outcomes of cases that have run, with this code or with code whose outcomes are accepted.

    Parameters
    ----------
    path
        The file; ``None``: outcomes are kept in memory.
    commit
        Commit of the code that runs now.
    accept
        Beginning of a commit whose outcomes count as well, as far as they are those that are allowed.
    """

    def __init__(self, path: Path | None, commit: str, accept: str | None = None) -> None:
        self._path = path
        self._commit = commit
        self._done: dict[tuple[str, Client], Finished] = {}
        content = path.read_bytes() if path is not None and path.exists() else b""
        complete, _, torn = content.rpartition(b"\n")  # by a run that was killed as it wrote
        if path is not None and torn:
            path.write_bytes(complete + b"\n" if complete else b"")
        for line in complete.splitlines():
            found = msgspec.json.decode(line, type=Finished)
            if self._counts(found, accept):
                self._done[found.case, found.client] = found

    @property
    def commits(self) -> list[str]:
        """Commits at which the outcomes were found."""
        return sorted({each.commit for each in self._done.values()})

    def outcomes(self, name: str, client: Client) -> list[Outcome] | None:
        """Outcomes of a case; ``None`` if it has not run."""
        found = self._done.get((name, client))
        return None if found is None else found.outcomes

    def add(self, name: str, client: Client, outcomes: list[Outcome]) -> None:
        """Add the outcomes of a case, and write them to the file."""
        found = Finished(name, client, digest(name), self._commit, outcomes)
        self._done[name, client] = found
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(found) + b"\n")

    @staticmethod
    def _counts(found: Finished, accept: str | None) -> bool:
        if found.case not in CASES:
            return False
        if accept is not None and found.commit.startswith(accept):
            return all(each.verdict == allowed(each.case, each.form) for each in found.outcomes)
        return found.digest == digest(found.case)
