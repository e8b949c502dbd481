"""Damaged streams sent to a socket feed: none ends its process, and every row is accounted for.

Valid Arrow streams and JSON lines are damaged at random, by a seed, and sent over loopback to a ``SocketFeed`` in a
process of its own. A case is accounted for if

- the rows given by ``read`` and those among the dead letters are as many as the acknowledged ones,
- all rows before the first damaged byte are accepted,
- a dead letter says so where the stream could not be read to its end,
- no dead letter is about a failure of the feed itself.
"""

import base64
import json
import random
import select
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from equipoise.microbatch.socket_feed import SocketFeed
from equipoise_lab.bench.harness import Context, Result

_BATCHES, _ROWS = 3, 24
_PATIENCE = 30.0  # seconds that a case may take
_LONGEST = 2 * _PATIENCE  # seconds after which a process that says nothing is ended
_SAMPLES = 100  # failed cases that are kept
_EXTREMES = [0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, 2**63 - 1, -(2**63)]


@dataclass(frozen=True)
class Stream:
    """A valid stream.

    Parameters
    ----------
    format
        ``arrow`` or ``json``.
    schema
        Schema of the tuples that a feed makes of it.
    data
        Its bytes.
    ends
        End of each message, with the rows up to there.
    """

    format: str
    schema: pa.Schema
    data: bytes
    ends: tuple[tuple[int, int], ...] = ()


def streams() -> dict[str, Stream]:
    """The valid streams that are damaged, by name."""
    found = {}
    for name, (table, schema) in _tables().items():
        found[name] = _arrow(table, schema)
        found[f"{name}, zstd"] = _arrow(table, schema, "zstd")
        found[f"{name}, lz4"] = _arrow(table, schema, "lz4")
    for name, (lines, schema) in _lines().items():
        found[name] = Stream("json", schema, "\n".join([*lines, ""]).encode())
    return found


def damaged(data: bytes, seed: object) -> bytes:
    """The bytes, damaged in one of several ways."""
    rng = random.Random(str(seed))  # noqa: S311 - damages test data
    return rng.choice(_DAMAGES)(data, rng)


def run(context: Context) -> Result:
    """Send damaged streams to a feed and account for every row."""
    count = context.repeats(10_000, 400)
    return fuzz(count, context.seed, lambda cases: context.track(cases, "fuzz feed"))


def fuzz(count: int, seed: int, track: Callable[[range], Iterator[int]] = iter) -> Result:
    """Run so many cases; the same seed gives the same ones."""
    known, receiver = streams(), _Receiver()
    names, kinds = list(known), Counter[str]()
    failed: list[dict[str, Any]] = []
    start = time.perf_counter()
    try:
        for number in track(range(count)):
            name = names[number % len(names)]
            stream = known[name]
            data = damaged(stream.data, f"{seed}/{number}")
            outcome = receiver.case(name, data)
            fault = _fault(stream, data, outcome)
            kinds[fault or ("broken" if outcome["broken"] else "read")] += 1
            if fault and len(failed) < _SAMPLES:
                case = {"case": f"{seed}/{number}", "stream": name, "fault": fault, "outcome": outcome}
                failed.append(case | {"bytes": base64.b64encode(data).decode()})
    finally:
        receiver.close()
    died = kinds["died"]
    metrics = {
        "cases": float(count),
        "died": float(died),
        "unaccounted": float(count - died - kinds["read"] - kinds["broken"]),
        "seconds": time.perf_counter() - start,
    }
    return Result(metrics, {"outcomes": dict(kinds), "failed": failed})


def _fault(stream: Stream, data: bytes, outcome: dict[str, Any]) -> str:
    """Reason why a case is not accounted for; empty where it is."""
    ended = [fault for fault in ("died", "raised", "hung", "bugs") if outcome.get(fault)]
    if ended:
        return ended[0]
    accepted, rows = outcome["accepted"], outcome["given"] + outcome["dead_letters"]
    if stream.format == "json":
        lines = data.split(b"\n")
        if accepted != len(lines) - (not lines[-1]) or rows != sum(bool(line.strip()) for line in lines):
            return "lines are missing"
        return ""
    return _arrow_fault(stream, data, outcome)


def _arrow_fault(stream: Stream, data: bytes, outcome: dict[str, Any]) -> str:
    accepted = outcome["accepted"]
    if outcome["given"] + outcome["dead_letters"] != accepted:
        return "rows given are not rows accepted"
    same = next((at for at, (a, b) in enumerate(zip(stream.data, data, strict=False)) if a != b), len(data))
    if accepted < max((rows for end, rows in stream.ends if end <= same), default=0):
        return "rows before the damage are missing"
    is_whole = len(data) == same and any(end == same for end, _ in stream.ends)
    if accepted < stream.ends[-1][1] and not outcome["broken"] and not is_whole:
        return "rows are missing without a word"
    return ""


def _lines() -> dict[str, tuple[list[str], pa.Schema]]:
    schema = pa.schema({"word": pa.string(), "n": pa.int64(), "at": pa.timestamp("us"), "items": pa.list_(pa.int64())})
    inner = pa.struct({"a": pa.int32(), "b": pa.string()})
    odd = pa.schema({"share": pa.float64(), "price": pa.decimal128(9, 2), "inner": inner, "raw": pa.binary()})
    shares = ["1.5", "NaN", "-Infinity", "1e400", "Inf", "null"]
    numbers = range(_BATCHES * _ROWS)
    plain = [
        json.dumps({"word": f"w{n}é", "n": n, "at": f"2024-01-{n % 28 + 1:02d}T00:00:00", "items": [n, None], "x": {}})
        for n in numbers
    ]
    strange = [
        f'{{"share": {shares[n % len(shares)]}, "price": "{n}.25", "inner": {{"b": "\\ud83d\\ude00", "a": {n}}}, '
        f'"raw": "\\u00e9{n}", "deep": {"[" * 30 * n}{"]" * 30 * n}}}'
        for n in numbers
    ]
    return {"json": (plain, schema), "json, odd values": (strange, odd)}


def _tables() -> dict[str, tuple[pa.Table, pa.Schema]]:
    n = _BATCHES * _ROWS
    words = [f"word {number % 7}" + "é" * (number % 5) for number in range(n)]
    zoned = pa.timestamp("us", "Europe/Paris")
    times = pa.array([datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=h) for h in range(n)], zoned)
    days = pa.array([date(2024, 1, 1) + timedelta(days=d) for d in range(n)])
    prices = pa.array([Decimal(number) / 4 for number in range(n)], pa.decimal128(10, 2))
    lists = pa.array([[number, None] * (number % 3) for number in range(n)], pa.list_(pa.int64()))
    structs = pa.array([{"a": number, "b": None if number % 4 else "x"} for number in range(n)])
    texts = pa.array([str(number) if number % 5 else "many" for number in range(n)])
    numbers = pa.array([number if number % 6 else None for number in range(n)], pa.int32())
    maps = pa.array([[(word, len(word))] for word in words], pa.map_(pa.string(), pa.int32()))
    codes = pa.array([b"abc", b"def"], pa.binary(3))
    key = pa.array(range(n), pa.int64())
    tables = {
        "ints": {"key": key, "value": numbers},
        "strings": {"key": key, "word": pa.array(words), "more": pa.array(words, pa.large_string())},
        "views": {"key": key, "word": pa.array([word * 3 for word in words], pa.string_view())},
        "dictionaries": {"key": key, "word": pa.array(words).dictionary_encode()},
        "nested": {"key": key, "list": lists, "struct": structs},
        "times": {"key": key, "at": times, "day": days},
        "decimals": {"key": key, "price": prices, "flag": pa.array([number % 3 == 0 for number in range(n)])},
        "texts": {"key": key, "n": texts, "x": pa.array([number / 7 for number in range(n)])},
        "fixed": {"key": key, "raw": pa.array([b"%03d" % number for number in range(n)], pa.binary(3))},
        "fixed in a dictionary": {"key": key, "raw": pa.DictionaryArray.from_arrays([0, 1] * (n // 2), codes)},
        "pairs": {"key": key, "list": pa.array([[number, None] for number in range(n)], pa.list_(pa.int32(), 2))},
        "maps": {"key": key, "map": maps},
        "nulls": {"key": key, "list": pa.array([[None] * (number % 4) for number in range(n)]), "none": pa.nulls(n)},
        "wide": {"key": key, **_unread(words)},
    }
    wanted = {
        "value": pa.int64(),
        "word": pa.string(),
        "more": pa.string(),
        "n": pa.int64(),
        "raw": pa.binary(),
        "list": pa.list_(pa.int64()),
        "map": pa.map_(pa.string(), pa.int64()),
        "none": pa.string(),
    }
    unread = _unread(words).keys()
    return {
        name: (
            pa.table(columns),
            pa.schema(
                [(column, wanted.get(column, each.type)) for column, each in columns.items() if column not in unread]
            ),
        )
        for name, columns in tables.items()
    }


def _unread(words: list[str]) -> dict[str, pa.Array]:
    """Columns that no schema has, of types that are refused in those that are read."""
    n = len(words)
    text = pa.array(words)
    return {
        "sparse union": pa.UnionArray.from_sparse(pa.array([0, 1] * (n // 2), pa.int8()), [pa.array(range(n)), text]),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([5, n], pa.int32()), pa.array(["a", "b"])),
        "list views": pa.ListViewArray.from_arrays([0] * n, [1] * n, text),
        "uuids": pa.array([b"0" * 16] * n, pa.uuid()),
        "lists in a dictionary": pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), pa.array([["a"]])),
    }


def _arrow(table: pa.Table, schema: pa.Schema, compression: str | None = None) -> Stream:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=_ROWS)
    data = sink.getvalue().to_pybytes()
    ends, rows, reader = [(0, 0)], 0, pa.BufferReader(data)
    for message in iter(lambda: _message(reader), None):
        rows += _ROWS if message.type == "record batch" else 0
        ends.append((reader.tell(), rows))
    return Stream("arrow", schema, data, (*ends, (len(data), rows)))


def _message(reader: pa.NativeFile) -> pa.Message | None:
    """The next message of a valid stream; ``None`` at its end."""
    try:
        return pa.ipc.read_message(reader)
    except EOFError:
        return None


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        bit = rng.randrange(8 * len(data))
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _flipped_early(data: bytes, rng: random.Random) -> bytes:
    """Flips near the beginning, where a stream says what its types are."""
    end = min(len(data), 600)
    return _flipped(data[:end], rng) + data[end:]


def _truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _swapped(data: bytes, rng: random.Random) -> bytes:
    a, b, c = sorted(rng.randrange(0, len(data), 8) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _repeated(data: bytes, rng: random.Random) -> bytes:
    a, b = sorted(rng.randrange(len(data)) for _ in range(2))
    return data[:b] + data[a:]


def _cut_out(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randint(1, 64) :]


def _spliced(data: bytes, rng: random.Random) -> bytes:
    """Numbers, such as lengths and offsets, are replaced by extreme ones."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 2)):
        width = rng.choice([4, 8])
        at = rng.randrange(0, len(data) - 8, 4)
        value = rng.choice(_EXTREMES) + rng.choice([0, 0, 8, -8])
        changed[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
    return bytes(changed)


_DAMAGES = (
    _flipped, _flipped, _flipped_early, _flipped_early, _truncated, _swapped, _repeated, _cut_out, _spliced, _spliced,
)  # fmt: skip


class _Receiver:
    """A process with feeds, which is replaced when it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def case(self, name: str, data: bytes) -> dict[str, Any]:
        """Outcome of one case."""
        if self._process is None:
            command = [sys.executable, "-X", "faulthandler", "-m", __name__]
            self._process = subprocess.Popen(  # noqa: S603 - this module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        assert self._process.stdin is not None  # noqa: S101 - this tells the type checker
        assert self._process.stdout is not None  # noqa: S101 - this tells the type checker
        try:
            self._process.stdin.write(json.dumps([name, base64.b64encode(data).decode()]) + "\n")
            self._process.stdin.flush()
            is_hung = not select.select([self._process.stdout], [], [], _LONGEST)[0]
            line = "" if is_hung else self._process.stdout.readline()
        except BrokenPipeError:
            is_hung, line = False, ""
        if line:
            return dict(json.loads(line))
        if is_hung:
            self._process.kill()
        self._process.communicate()
        code, self._process = self._process.returncode, None
        return {"hung": True} if is_hung else {"died": True, "exit": code}

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate(timeout=_PATIENCE)


def _serve() -> None:
    """Run the cases that come over the standard input, and print their outcomes."""
    known, feeds = streams(), {}
    for line in sys.stdin:
        name, data = json.loads(line)
        if name not in feeds:
            feeds[name] = SocketFeed(known[name].schema, format=known[name].format)
            feeds[name].open(None)
        outcome = _outcome(feeds[name], base64.b64decode(data))
        if outcome["raised"] or outcome["hung"]:
            feeds.pop(name).close()
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


def _outcome(feed: SocketFeed, data: bytes) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    sender = threading.Thread(target=_send, args=(feed.port, data, lines), daemon=True)
    sender.start()
    found = {"given": 0, "dead_letters": 0, "broken": 0, "bugs": 0, "raised": "", "hung": False}
    until = time.monotonic() + _PATIENCE
    try:
        while sender.is_alive() or feed.connections:
            _take(feed, found)
            if time.monotonic() > until:
                return found | {"hung": True}
        while _take(feed, found):
            continue
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return found | {"raised": f"{type(error).__name__}: {error}"}
    last = lines[-1] if lines else {}
    return found | {"accepted": last.get("accepted", 0), "error": last.get("error", "")}


def _take(feed: SocketFeed, found: dict[str, Any]) -> bool:
    chunk = feed.read(0.001)
    if chunk is None:
        return False
    rows = chunk.table.take(pa.array(range(chunk.table.num_rows), pa.int64()))  # as a receiver cuts and keeps them
    with pa.ipc.new_stream(pa.BufferOutputStream(), rows.schema) as writer:
        writer.write_table(rows)
    found["given"] += chunk.table.num_rows
    found["broken"] += sum(not letter.text for letter in chunk.dead_letters)
    found["bugs"] += sum("report this as a bug" in letter.reason for letter in chunk.dead_letters)
    found["dead_letters"] += sum(letter.rows for letter in chunk.dead_letters if letter.text)
    chunk.acknowledge()
    return True


def _send(port: int, data: bytes, lines: list[dict[str, Any]]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answers:
            lines += [json.loads(line) for line in answers]


if __name__ == "__main__":
    _serve()
