"""A socket feed among strangers: nobody can take more than the limits, and nothing is lost without a word."""

import json
import logging
import socket
import threading
import time
from contextlib import suppress

import pyarrow as pa
import pytest

from equipoise import InvalidArgument
from equipoise.bench import fuzz_feed
from equipoise.microbatch import connections
from equipoise.microbatch.dead_letters import DeadLetter
from equipoise.microbatch.receiver import Cutting, Receiver
from equipoise.microbatch.socket_feed import Limits, SocketFeed
from equipoise.microbatch.spool import Spool
from equipoise.spark.microbatch.source import _OPTIONS, _feed

SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})
LINE = b'{"word": "a", "n": 1}\n'


@pytest.fixture
def listening():
    feeds = []

    def make(format="json", **limits):  # noqa: A002 - the name of the option
        feeds.append(SocketFeed(SCHEMA, format=format, limits=Limits(**limits)))
        feeds[-1].open(None)
        return feeds[-1]

    yield make
    for feed in feeds:
        feed.close()


def connected(feed):
    return socket.create_connection(("127.0.0.1", feed.port), timeout=30)


def answers(connection):
    data = b""
    with suppress(ConnectionError):
        while received := connection.recv(4096):
            data += received
    return [json.loads(line) for line in data.splitlines()]


def taken(feed, is_enough, seconds=30):
    """Rows and letters until there are enough."""
    rows, letters, until = 0, [], time.monotonic() + seconds
    while not is_enough(rows, letters):
        assert time.monotonic() < until
        chunk = feed.read(0.01)
        if chunk is not None:
            rows += len(chunk.table)
            letters += chunk.letters
            chunk.acknowledge()
    return rows, letters


def wait_for(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def arrow(*tables, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


def table(n):
    return pa.table({"word": ["a"] * n, "n": [1] * n})


def test_a_connection_too_many_is_told_and_let_in_when_another_ends(listening, caplog):
    feed = listening(connections=2)
    first, second = connected(feed), connected(feed)
    wait_for(lambda: feed.connections == 2)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with connected(feed) as refused:
                [line] = answers(refused)
                assert line["accepted"] == 0
                assert "2 connections are open, and no more are let in; try again later" in line["error"]
    assert len([record for record in caplog.records if "were refused so far" in record.message]) == 2  # 1st and 2nd
    first.close()
    wait_for(lambda: feed.connections == 1)
    with connected(feed) as third:
        third.sendall(LINE)
        assert taken(feed, lambda rows, _: rows)[0] == 1
    second.close()


def test_a_silent_sender_is_told_and_leaves_no_dead_letter(listening):
    feed = listening(idle=0.1)
    with connected(feed) as sender:
        sender.sendall(LINE)
        taken(feed, lambda rows, _: rows)
        last = answers(sender)[-1]
    assert last["accepted"] == 1
    assert "no whole line or message for 0.1 seconds; send one, or raise idle" in last["error"]
    wait_for(lambda: feed.connections == 0)
    assert feed.read(0) is None


@pytest.mark.parametrize(("format", "begin"), [("json", b"{"), ("arrow", arrow(table(5))[:40])], ids=["json", "arrow"])
def test_a_sender_of_a_byte_at_a_time_cannot_stay(listening, format, begin):  # noqa: A002 - the name of the option
    feed = listening(format, idle=0.5)
    start = time.monotonic()
    with connected(feed) as sender:
        with suppress(OSError):
            sender.sendall(begin)
            for _ in range(1000):
                sender.sendall(b"x")
                time.sleep(0.01)
        _, letters = taken(feed, lambda _, letters: letters)
    assert time.monotonic() - start < 30
    assert letters[0][0] == ""
    assert "ended in mid-stream: no whole line or message for 0.5 seconds" in letters[0][1]


def test_a_sender_that_was_made_to_wait_is_not_taken_for_silent(listening):
    feed = listening(idle=0.3, waiting_bytes=1000)
    with connected(feed) as sender:
        sender.sendall(LINE * 200)
        time.sleep(0.1)
        sender.sendall(LINE * 200)
        time.sleep(0.6)  # nobody reads: the second part waits at the door
        sender.shutdown(socket.SHUT_WR)
        rows, letters = taken(feed, lambda rows, _: rows == 400)
        assert answers(sender)[-1] == {"accepted": 400}
    assert (rows, letters) == (400, [])


def test_what_waits_is_bounded_by_its_bytes():
    waiting = connections.Waiting(10_000)

    def arrived(size):
        letters = [DeadLetter("x" * (size - connections._ENTRY_BYTES - connections._LETTER_BYTES - 3), "why")]
        return connections.Arrived(connections.Sender(None), 1, pa.table({}), letters)

    waiting.put(arrived(50_000))  # anything fits into nothing
    more = [threading.Thread(target=waiting.put, args=(arrived(6000),)) for _ in range(2)]
    for thread in more:
        thread.start()
    assert waiting.get(1).bytes == 50_000
    wait_for(lambda: sum(thread.is_alive() for thread in more) == 1)
    assert waiting.get(1).bytes == 6000
    for thread in more:
        thread.join(30)
    assert waiting.get(1).bytes == 6000
    assert waiting.get(0) is None


def test_a_long_line_is_told_with_what_to_do(listening):
    feed = listening(line_bytes=1000)
    with connected(feed) as sender:
        sender.sendall(LINE + b"{" + b"x" * 5000)
        rows, letters = taken(feed, lambda _, letters: letters)
        last = answers(sender)[-1]
    assert rows == 1
    assert "after 1 lines or rows: a line has more than 1,000 bytes and begins with '{xxx" in letters[0][1]
    assert last["accepted"] == 1
    assert "send shorter lines, or raise lineBytes" in last["error"]


def test_a_message_of_too_many_rows_is_told_and_those_before_it_are_kept(listening):
    feed = listening("arrow", message_rows=100)
    data = arrow(table(100), table(101), table(5), compression="zstd")
    with connected(feed) as sender:
        sender.sendall(data)
        sender.shutdown(socket.SHUT_WR)
        rows, letters = taken(feed, lambda _, letters: letters)
        last = answers(sender)[-1]
    assert rows == 100
    assert "after 100 lines or rows: message 3 has 101 rows, and at most 100 were expected" in letters[0][1]
    assert last["accepted"] == 100
    assert "send smaller record batches" in last["error"]


def test_bytes_behind_the_end_of_a_stream_are_told(listening):
    feed = listening("arrow")
    with connected(feed) as sender:
        sender.sendall(arrow(table(3)) * 2)
        sender.shutdown(socket.SHUT_WR)
        rows, letters = taken(feed, lambda _, letters: letters)
        assert answers(sender)[-1] == {"accepted": 3}
    assert rows == 3
    assert "bytes follow the end of the stream" in letters[0][1]


def test_an_arrow_sender_that_waits_for_its_last_acknowledgement_gets_it(listening):
    feed = listening("arrow")
    with connected(feed) as sender:
        sender.sendall(arrow(table(3)))  # and does not end its side
        taken(feed, lambda rows, _: rows == 3)
        assert answers(sender)[-1] == {"accepted": 3}


def test_senders_notice_that_the_feed_ends(listening):
    feed = listening()
    with connected(feed) as sender:
        wait_for(lambda: feed.connections == 1)
        feed.close()
        assert answers(sender) == []
    wait_for(lambda: feed.connections == 0)


def test_a_failure_of_our_own_is_told_and_other_senders_go_on(listening, monkeypatch, caplog):
    feed = listening()

    def broken(*_):
        raise ZeroDivisionError("no more")

    with monkeypatch.context() as patch, connected(feed) as sender:
        patch.setattr("equipoise.microbatch.socket_feed.parse_lines", broken)
        sender.sendall(LINE)
        _, letters = taken(feed, lambda _, letters: letters)
        assert answers(sender)[-1]["accepted"] == 0
    assert "ZeroDivisionError: no more; report this as a bug" in letters[0][1]
    assert "reading from" in caplog.text
    with connected(feed) as sender:
        sender.sendall(LINE)
        assert taken(feed, lambda rows, _: rows)[0] == 1


@pytest.mark.parametrize(
    "limits", [{"connections": 0}, {"idle": 0}, {"line_bytes": -1}, {"message_rows": 1.5}, {"waiting_bytes": "x"}]
)
def test_limits_that_cannot_be_are_told(limits):
    [name] = limits
    with pytest.raises(InvalidArgument, match=name):
        Limits(**limits)


def test_options_of_the_data_source_set_the_limits():
    options = {"connections": "3", "waitingbytes": "4", "linebytes": "5", "messagerows": "6", "messagebytes": "7"}
    options |= {"idle": "2 minutes", "feed": "socket", "port": "0"}
    assert options.keys() <= _OPTIONS
    assert _feed(options, SCHEMA, {})._limits == Limits(3, 120.0, 4, 5, 6, 7)
    assert _feed({"feed": "connect"}, SCHEMA, {})._limits == Limits()
    with pytest.raises(InvalidArgument, match="option lineBytes must be a number, got 'long'"):
        _feed(options | {"linebytes": "long"}, SCHEMA, {})


def test_a_schema_that_json_cannot_have_is_told():
    with pytest.raises(InvalidArgument, match=r"format json cannot read this schema: .*map.*; use format arrow"):
        SocketFeed(pa.schema({"m": pa.map_(pa.string(), pa.int64())}))


def test_batches_are_sealed_and_others_received_while_bad_lines_are_parsed(tmp_path):
    feed = SocketFeed(SCHEMA)
    receiver = Receiver(Spool(tmp_path), feed, SCHEMA, Cutting(("word",), 0.1, blocks=2))
    receiver.start()
    wait_for(lambda: receiver.sealed > 0)
    sealed = receiver.sealed
    bad, good = 60_000, 50
    with connected(feed) as sender, connected(feed) as other:
        flood = threading.Thread(target=sender.sendall, args=(b'{"n": "x"}\n' * bad,))
        flood.start()
        for _ in range(good):
            other.sendall(LINE)
        other.shutdown(socket.SHUT_WR)
        assert answers(other)[-1] == {"accepted": good}
        wait_for(lambda: receiver.sealed > sealed + 1)
        flood.join()
        sender.shutdown(socket.SHUT_WR)
        assert answers(sender)[-1] == {"accepted": bad}
    wait_for(lambda: receiver._spool.letters == bad)
    wait_for(lambda: sum(line["rows"] for line in Spool(tmp_path).history()) == good)
    receiver.stop()
    assert len(Spool(tmp_path).dead_letters()) == bad


def test_dead_letters_that_are_only_counted_are_warned_of_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("equipoise.microbatch.spool._LETTERS_BYTES", 10)
    feed = SocketFeed(SCHEMA)
    receiver = Receiver(Spool(tmp_path), feed, SCHEMA, Cutting(("word",), 0.1))
    receiver.start()
    for number in range(1, 5):
        with connected(feed) as sender:
            sender.sendall(b"nonsense\n")
            sender.shutdown(socket.SHUT_WR)
            assert answers(sender)[-1] == {"accepted": 1}
        wait_for(lambda number=number: receiver._spool.letters == number)
    receiver.stop()
    assert caplog.text.count("further ones are only counted") == 1
    assert len(Spool(tmp_path).dead_letters()) == 1


def test_a_sender_that_reads_nothing_keeps_nobody_waiting(listening):
    feed = listening(idle=1.0)
    feed._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", feed.port))
        sent, is_full = 0, False
        while not is_full:
            deaf.sendall(LINE)
            sent += 1
            arrived = feed._waiting.get(5)
            arrived.sender.accept(arrived.count)
            is_full = bool(arrived.sender._unsent)
        deaf.sendall(b"{")  # a line that never ends: the connection is ended, and cannot say so
        start = time.monotonic()
        taken(feed, lambda _, letters: letters)
        with connected(feed) as other:
            other.sendall(LINE)
            taken(feed, lambda rows, _: rows)
        assert time.monotonic() - start < 8


def test_no_damaged_stream_ends_the_process_or_loses_a_row():
    result = fuzz_feed.fuzz(300, seed=20)
    assert result.samples["failed"] == []
    assert (result.metrics["cases"], result.metrics["died"], result.metrics["unaccounted"]) == (300, 0, 0)
    assert {"read", "broken"} <= set(result.samples["outcomes"])


def test_a_receiver_that_dies_and_rows_that_are_missing_are_counted(monkeypatch):
    outcomes = iter(
        [
            {"died": True, "exit": -11},
            {"given": 5, "letters": 0, "broken": 0, "accepted": 7},
            {"given": 0, "letters": 0, "broken": 0, "raised": "OSError"},
        ]
    )
    monkeypatch.setattr(fuzz_feed._Receiver, "case", lambda *_: next(outcomes))
    result = fuzz_feed.fuzz(3, seed=1)
    assert (result.metrics["died"], result.metrics["unaccounted"]) == (1, 2)
    assert [case["case"] for case in result.samples["failed"]] == ["1/0", "1/1", "1/2"]
    assert all(case["bytes"] for case in result.samples["failed"])


def test_a_stream_that_ends_with_any_of_its_messages_is_not_taken_for_a_loss():
    for name, stream in fuzz_feed.streams().items():
        if stream.format == "arrow":
            assert len(stream.ends) >= 6, name  # the beginning, a schema, three batches, and the end
            assert stream.ends[-1] == (len(stream.data), 72)
            for end, rows in stream.ends:
                outcome = {"given": rows, "letters": 0, "broken": 0, "accepted": rows}
                assert fuzz_feed._fault(stream, stream.data[:end], outcome) == "", name
            assert fuzz_feed._fault(stream, stream.data[: end - 9], outcome | {"given": 48, "accepted": 48}) != "", name


def test_a_case_is_the_same_for_the_same_seed():
    data = bytes(range(256)) * 4
    assert [fuzz_feed.damaged(data, seed) for seed in range(30)] == [
        fuzz_feed.damaged(data, seed) for seed in range(30)
    ]
    assert len({fuzz_feed.damaged(data, seed) for seed in range(30)}) > 20
