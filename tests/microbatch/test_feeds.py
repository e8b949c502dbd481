"""Feeds: tuples in order, at their rate, and on from where they were."""

import errno
import json
import socket
import threading
import time
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from equipoise import FeedError, InvalidArgumentError
from equipoise.microbatch import feeds
from equipoise.microbatch.connections import Sender
from equipoise.microbatch.feeds import CallableFeed, GeneratedFeed, ReplayFeed
from equipoise.microbatch.rates import Rate
from equipoise.microbatch.socket_feed import SocketFeed

SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
TEXT = pa.schema({"word": pa.string(), "n": pa.int64()})


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_replay_sends_what_is_due_and_goes_on_after_a_restart(tmp_path):
    rows = pa.table({"key": list(range(100)), "value": [0] * 100}, schema=SCHEMA)
    pq.write_table(rows.append_column("more", pa.array([1] * 100)), tmp_path / "rows.parquet")
    clock = Clock()
    feed = ReplayFeed(str(tmp_path / "rows.parquet"), SCHEMA, Rate(10), clock=clock)
    feed.open(None)
    assert feed.read(0) is None
    clock.now += 2.55
    chunk = feed.read(0)
    assert chunk.table["key"].to_pylist() == list(range(25))
    again = ReplayFeed(str(tmp_path / "rows.parquet"), SCHEMA, Rate(10), clock=clock)
    again.open(chunk.position)
    assert again.read(0) is None
    clock.now += 100
    assert again.read(0).table["key"].to_pylist() == list(range(25, 100))
    assert again.is_done
    assert again.read(0) is None


def test_a_replay_reads_the_columns_that_it_needs(tmp_path, monkeypatch):
    pq.write_table(pa.table({"key": [1], "value": [2], "more": [3]}), tmp_path / "rows.parquet")
    read, asked = pq.read_table, []

    def read_table(path, **options):
        asked.append(options["columns"])
        return read(path, **options)

    monkeypatch.setattr(pq, "read_table", read_table)
    ReplayFeed(str(tmp_path / "rows.parquet"), SCHEMA, Rate(1))
    assert asked == [["key", "value"]]


def test_a_replay_that_cannot_be_is_reported(tmp_path):
    with pytest.raises(FeedError, match=r"cannot replay .*no.parquet"):
        ReplayFeed(str(tmp_path / "no.parquet"), SCHEMA, Rate(1))
    pq.write_table(pa.table({"other": [1]}), tmp_path / "other.parquet")
    with pytest.raises(FeedError, match="with the columns"):
        ReplayFeed(str(tmp_path / "other.parquet"), SCHEMA, Rate(1))


def test_generated_tuples_are_the_same_however_they_are_cut():
    def keys(steps):
        clock = Clock()
        feed = GeneratedFeed(SCHEMA, Rate(10_000), keys=50, seed=3, count=150_000, clock=clock)
        feed.open(None)
        found = []
        for step in steps:
            clock.now += step
            while (chunk := feed.read(0)) is not None:
                found += chunk.table["key"].to_pylist()
        return found

    once = keys([20])
    assert len(once) == 150_000
    assert once == keys([0.3, 1.7, 6, 0.01, 20])
    assert set(once) <= set(range(50))
    with pytest.raises(InvalidArgumentError, match="key and value, got other"):
        GeneratedFeed(pa.schema({"other": pa.int64()}), Rate(1))


@pytest.fixture
def calling():
    feeds = []

    def make(function):
        feeds.append(CallableFeed(function, SCHEMA))
        return feeds[-1]

    yield make
    for feed in feeds:
        feed.close()


def test_a_function_is_asked_from_where_it_was_and_its_failure_is_reported(calling):
    def function(position):
        at = position or 0
        if at == 4:
            raise ValueError("the well is dry")
        return ([{"key": at, "value": 1}], at + 1) if at != 2 else (pa.table({"value": [2], "key": [2]}), 3)

    feed = calling(function)
    feed.open(1)
    assert [feed.read(120).table.to_pylist() for _ in range(2)] == [[{"key": 1, "value": 1}], [{"key": 2, "value": 2}]]
    assert feed.read(120).position == 4
    with pytest.raises(FeedError, match="after position 4: ValueError: the well is dry"):
        feed.read(120)
    empty = calling(lambda _: None)
    empty.open(None)
    assert empty.read(0.05) is None


def test_a_position_that_a_function_changes_in_place_stays_what_it_was_for_its_rows(calling):
    def function(position):
        position = position if position is not None else {"next": 0}
        position["next"] += 1
        return [{"key": position["next"], "value": 0}], position

    feed = calling(function)
    feed.open(None)
    chunks = [feed.read(120) for _ in range(3)]
    assert [(chunk.table["key"].to_pylist(), chunk.position) for chunk in chunks] == [
        ([at], {"next": at}) for at in (1, 2, 3)
    ]


def test_a_position_that_cannot_be_kept_is_reported(calling):
    feed = calling(lambda _: ([{"key": 1, "value": 1}], object()))
    feed.open(None)
    with pytest.raises(FeedError, match="after position None: TypeError"):
        feed.read(120)


def test_a_function_without_rows_moves_on_and_is_not_called_all_the_time(calling):
    asked, times = [], []

    def function(position):
        asked.append(position)
        times.append(time.monotonic())
        return [], len(asked)

    feed = calling(function)
    feed.open(None)
    chunk = feed.read(120)
    assert (chunk.table.num_rows, chunk.position) == (0, 1)
    while len(asked) < 10:
        feed.read(120)
    feed.close()
    assert asked[:3] == [None, 1, 2]
    assert min(np.diff(times)) >= 0.9 * feeds._PAUSE


def test_a_function_that_waits_keeps_nobody_waiting(calling):
    go, ended = threading.Event(), threading.Event()
    feed = calling(lambda _: go.wait(120) and ended.set())
    feed.open(None)
    assert feed.read(0.01) is None
    feed.close()
    assert not ended.is_set(), "the function still waits"
    go.set()


def send_arrow(port, rows):
    with (
        socket.create_connection(("127.0.0.1", port)) as sender,
        sender.makefile("wb") as file,
        pa.ipc.new_stream(file, rows.schema) as writer,
    ):
        writer.write_table(rows)


def test_lines_from_two_senders_arrive_and_are_acknowledged(listening, taken, answers):
    feed = listening()
    senders = [socket.create_connection(("127.0.0.1", feed.port)) for _ in range(2)]
    for number, sender in enumerate(senders):
        lines = [json.dumps({"word": f"w{i}", "n": number}) for i in range(1000)]
        sender.sendall("\n".join(lines).encode())  # the last line has no end
        sender.shutdown(socket.SHUT_WR)
    table, letters = taken(feed, lambda rows, letters: rows + len(letters) >= 2000)
    assert not letters
    assert sorted(table.to_pylist(), key=lambda row: (row["n"], int(row["word"][1:]))) == [
        {"word": f"w{i}", "n": n} for n in range(2) for i in range(1000)
    ]
    assert [answers(sender)[-1] for sender in senders] == [{"accepted": 1000}] * 2
    for sender in senders:
        sender.close()


def test_lines_that_cannot_be_read_go_to_the_dead_letters(listening, taken):
    feed = listening()
    with socket.create_connection(("127.0.0.1", feed.port)) as sender:
        sender.sendall(b'{"word": "a", "n": 1}\nnonsense\n{"word": "b", "n": "many"}\n{"word": "c"}\n\xff\n{"n": 2}\n')
        sender.sendall(b'null\n[1]\n\n{"word": "\xff"}\n{"word": "d"\n')
        table, letters = taken(feed, lambda rows, letters: rows + len(letters) >= 10)
    assert table.to_pylist() == [{"word": "a", "n": 1}, {"word": "c", "n": None}, {"word": None, "n": 2}]
    assert sorted(letter for letter, _, _ in letters) == sorted(
        ["nonsense", '{"word": "b", "n": "many"}', "\\xff", "null", "[1]", '{"word": "\\xff"}', '{"word": "d"']
    )
    assert all(letter.reason for letter in letters)


def test_an_arrow_stream_arrives_and_what_is_none_is_reported(listening, taken):
    feed = listening(format="arrow")
    rows = pa.table({"n": [1, 2], "word": ["a", "b"], "more": [0, 0]})
    send_arrow(feed.port, rows)
    table, _ = taken(feed, lambda rows, letters: rows + len(letters) >= 2)
    assert table.to_pylist() == [{"word": "a", "n": 1}, {"word": "b", "n": 2}]
    with socket.create_connection(("127.0.0.1", feed.port)) as sender:
        sender.sendall(b"this is not Arrow at all, whatever you make of it")
    table, letters = taken(feed, lambda rows, letters: rows + len(letters) >= 1)
    assert (len(table), len(letters)) == (0, 1)
    assert "send an Arrow IPC stream" in letters[0][1]


def test_rows_of_an_arrow_batch_that_do_not_fit_are_reported_and_the_others_arrive(listening, taken):
    feed = listening(format="arrow")
    rows = pa.table({"n": [str(n) if n != 37 else "many" for n in range(100)], "word": ["a"] * 100})
    send_arrow(feed.port, rows)
    table, letters = taken(feed, lambda rows, letters: rows + len(letters) >= 100)
    assert table["n"].to_pylist() == [n for n in range(100) if n != 37]
    assert [json.loads(letter) for letter, _, _ in letters] == [{"n": "many", "word": "a"}]


def test_a_row_of_bytes_that_are_no_text_is_kept_as_it_is(listening, taken):
    feed = listening(format="arrow")
    text = pa.array([b"a", b"\xff"]).view(pa.string())
    send_arrow(feed.port, pa.table({"n": [1, 2], "word": text, "when": pa.array([0, 0], pa.timestamp("s"))}))
    table, letters = taken(feed, lambda rows, letters: rows + len(letters) >= 2)
    assert table.to_pylist() == [{"word": "a", "n": 1}]
    assert [json.loads(letter) for letter, _, _ in letters] == [{"n": 2, "word": "\\xff"}]


def test_a_line_without_end_is_reported_and_its_connection_closed(listening, taken):
    feed = listening(line_bytes=10_000)
    with socket.create_connection(("127.0.0.1", feed.port)) as sender:
        with suppress(ConnectionError):  # it may be closed before all is sent
            sender.sendall(b"x" * 5_000_000)
        _, letters = taken(feed, lambda rows, letters: rows + len(letters) >= 1)
    assert "a line has more than 10,000 bytes" in letters[0][1]


def test_a_sender_that_is_not_read_from_is_slowed_down_and_nothing_is_lost(listening, taken, answers):
    feed = listening(waiting_bytes=1 << 20)
    line = json.dumps({"word": "x" * 1000, "n": 1}).encode() + b"\n"
    sent, slowed = 0, False
    with socket.create_connection(("127.0.0.1", feed.port)) as sender:
        sender.settimeout(0.5)
        try:
            while sent < 400_000_000:
                sent += sender.send(line * 100)
        except TimeoutError:
            slowed = True
        assert slowed
        sender.shutdown(socket.SHUT_WR)
        lines = -(-sent // len(line))
        table, letters = taken(feed, lambda rows, letters: rows + len(letters) >= lines)
        assert answers(sender)[-1] == {"accepted": lines}
    assert len(table) + len(letters) == lines
    assert len(letters) <= 1  # the line that was cut when the sender gave up


def test_a_port_in_use_a_sender_that_is_not_there_and_a_strange_format_are_reported(listening, taken):
    port = listening().port
    with pytest.raises(FeedError, match=f"cannot listen on 127.0.0.1:{port}"):
        listening(port=port)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        feed = listening(port=reserved.getsockname()[1], connect=True, patience=0.3)
        with pytest.raises(FeedError, match="cannot reach the feed"):
            taken(feed, lambda *_: False)
    with pytest.raises(InvalidArgumentError, match="format must be one of json, arrow"):
        SocketFeed(TEXT, format="xml")


def test_a_feed_that_is_connected_to_arrives(taken):
    with socket.create_server(("127.0.0.1", 0)) as server:
        feed = SocketFeed(TEXT, port=server.getsockname()[1], connect=True)
        feed.open(None)
        connection, _ = server.accept()
        with connection:
            connection.sendall(b'{"word": "a", "n": 1}\n')
            table, _ = taken(feed, lambda rows, letters: rows + len(letters) >= 1)
        feed.close()
    assert table.to_pylist() == [{"word": "a", "n": 1}]


def test_an_acknowledgement_that_went_in_part_is_completed_before_the_next():
    class Slow:
        def __init__(self):
            self.room, self.got = 5, b""

        def send(self, data, _):
            if not self.room:
                raise BlockingIOError
            taken, self.room = data[: self.room], max(0, self.room - len(data))
            self.got += taken
            return len(taken)

        sendall = send

        def settimeout(self, _):
            pass

        def shutdown(self, _):
            pass

    connection = Slow()
    sender = Sender(connection)
    sender.accept(3)
    sender.accept(4)
    connection.room = 1000
    sender.finish(None)
    assert [json.loads(line) for line in connection.got.splitlines()] == [{"accepted": 3}, {"accepted": 7}]


def test_a_sender_that_reads_only_when_it_has_ended_learns_of_its_last_line(listening, answers, monkeypatch):
    feed = listening()
    feed._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sender.connect(("127.0.0.1", feed.port))
        sent, is_full = 0, False
        while not is_full:
            assert sent < 100_000
            sender.sendall(b'{"n": 1}\n')
            sent += 1
            arrived = feed._waiting.get(120)
            arrived.sender.accept(arrived.count)
            is_full = bool(arrived.sender._unsent)
        ending, finish = threading.Event(), Sender.finish
        monkeypatch.setattr(Sender, "finish", lambda sender, error: (ending.set(), finish(sender, error)))
        sender.shutdown(socket.SHUT_WR)
        assert ending.wait(120)  # the receiver has seen the end, and cannot report yet
        assert answers(sender)[-1] == {"accepted": sent}


def failing_accept(monkeypatch, times):
    accept, failed = socket.socket.accept, []

    def fail(listening):
        if len(failed) < times:
            failed.append(listening)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", fail)
    return failed


def test_a_sender_is_let_in_when_there_are_files_again(listening, monkeypatch, taken):
    failed = failing_accept(monkeypatch, 2)
    feed = listening()
    with socket.create_connection(("127.0.0.1", feed.port)) as sender:
        sender.sendall(b'{"word": "a", "n": 1}\n')
        table, _ = taken(feed, lambda rows, letters: rows + len(letters) >= 1)
    assert (len(failed), len(table)) == (2, 1)


def test_that_no_sender_can_be_let_in_is_reported(listening, monkeypatch, taken):
    failing_accept(monkeypatch, 1_000_000)
    feed = listening(patience=0.2)
    with pytest.raises(FeedError, match=r"no sender could be let in for 0.2 seconds.*Too many open files"):
        taken(feed, lambda *_: False)


def test_whoever_waits_for_senders_ends_with_the_feed(listening, monkeypatch):
    accept, is_waiting = socket.socket.accept, threading.Event()
    monkeypatch.setattr(socket.socket, "accept", lambda listener: (is_waiting.set(), accept(listener))[1])
    before = set(threading.enumerate())
    feed = listening()
    [accepting] = set(threading.enumerate()) - before
    assert is_waiting.wait(120)
    feed.close()
    accepting.join(120)
    assert not accepting.is_alive()


def test_a_peer_that_closes_at_once_is_not_called_all_the_time(listening):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        listening(port=server.getsockname()[1], connect=True)
        server.accept()[0].close()
        start = time.monotonic()
        for _ in range(4):
            server.accept()[0].close()
        assert time.monotonic() - start > 0.25  # a pause of 0.1 seconds before each, but for what the first one took
