"""Bound the memory or the page cache of a process and its children by a memory cgroup."""

import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
_SECONDS = 0.02  # between two looks at the memory of the group


class MemoryGroup(NamedTuple):
    """A memory cgroup.

    Parameters
    ----------
    path
        Its folder; ``None`` if this machine gives none.
    found
        What it is, or why there is none.
    """

    path: Path | None
    found: str

    def join(self) -> None:
        """Put this process into the group, and with it the processes that it will start."""
        if self.path is not None:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, size: int) -> None:
        """Keep all memory of the group to so many bytes; the kernel ends processes that exceed them."""
        if self.path is not None:
            first = self.path / "memory.limit_in_bytes"
            (first if first.exists() else self.path / "memory.max").write_text(str(size))

    @contextmanager
    def bounding(self, page_cache: int) -> Iterator[None]:
        """Keep the page cache of the group to so many bytes beside the memory of its processes; stay outside of it.

        The limit of a group counts both, so it follows the memory of the processes while the block runs. Where they
        grow faster, they wait for the next look.
        """
        if self.path is None:
            yield
            return
        control = self.path / "memory.oom_control"
        if control.exists():
            control.write_text("1")  # wait instead of being killed
        done = threading.Event()
        thread = threading.Thread(target=_follow, args=(self.path, page_cache, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def memory_group() -> Iterator[MemoryGroup]:
    """Make a cgroup for the block; all its processes must have ended at the end."""
    name = f"equipoise-{uuid.uuid4().hex}"
    path, found = _made(name)
    try:
        yield MemoryGroup(path, found)
    finally:
        if path is not None:
            _remove(path)


def _made(name: str) -> tuple[Path | None, str]:
    reasons = []
    for parent, limit, version in ((_V1, "memory.limit_in_bytes", "v1"), (_V2, "memory.high", "v2")):
        path = parent / name
        try:
            path.mkdir()
        except OSError as error:
            reasons.append(f"{version}: {error}")
            continue
        if (path / limit).exists():
            return path, f"cgroup {version}"
        path.rmdir()
        reasons.append(f"{version}: no {limit}")
    return None, f"no memory cgroup, the page cache is not bounded ({'; '.join(reasons)})"


def _follow(path: Path, page_cache: int, done: threading.Event) -> None:
    first = path / "memory.limit_in_bytes"
    limit, anonymous = (first, "total_rss") if first.exists() else (path / "memory.high", "anon")
    while not done.wait(_SECONDS):
        used = dict(line.split() for line in (path / "memory.stat").read_text().splitlines())
        with suppress(OSError):  # busy: more is in use than the kernel can free at once
            limit.write_text(str(int(used[anonymous]) + page_cache))


def _remove(path: Path) -> None:
    """Remove a group; the kernel needs a moment after its last process."""
    for _ in range(100):
        try:
            path.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return
