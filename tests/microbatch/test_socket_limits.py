"""A socket feed among strangers: nobody can take more than the limits, and nothing is lost without a word."""

import errno
import json
import logging
import socket
import threading

import pyarrow as pa
import pytest

from equipoise import InvalidArgumentError
from equipoise.microbatch import connections
from equipoise.microbatch.dead_letters import DeadLetter, TimedOutError
from equipoise.microbatch.json_lines import parse_lines
from equipoise.microbatch.receiver import Cutting, Receiver
from equipoise.microbatch.socket_feed import Limits, SocketFeed
from equipoise.microbatch.spool import Spool
from equipoise.spark.prompt.source import _OPTIONS, _feed

SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})
LINE = b'{"word": "a", "n": 1}\n'


def connected(feed):
    return socket.create_connection(("127.0.0.1", feed.port), timeout=120)


def table(n):
    return pa.table({"word": ["a"] * n, "n": [1] * n})


def test_a_connection_too_many_is_reported_and_let_in_when_another_ends(listening, caplog, taken, answers, wait_for):
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
        assert len(taken(feed, lambda rows, _: rows)[0]) == 1
    second.close()


class Clock:
    """Time that passes when asked to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """Clock of all connections; ``clock.incoming`` has the bytes of each."""
    clock = Clock()
    clock.incoming = []

    def incoming(*given, **options):
        clock.incoming.append(connections.Incoming(*given, **options, clock=clock))
        return clock.incoming[-1]

    monkeypatch.setattr("equipoise.microbatch.socket_feed.Incoming", incoming)
    monkeypatch.setattr(connections, "_POLL", 0.01)  # the clock is looked at so often
    return clock


@pytest.fixture
def pair():
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def test_a_sender_gets_its_time_anew_only_for_what_is_complete(pair):
    clock = Clock()
    incoming = connections.Incoming(pair[0], 10, clock=clock)
    for count in (1, 2):
        clock.pass_by(4)
        pair[1].send(b"x")
        assert (incoming.receive(10), incoming.begun) == (b"x", count)
    incoming.restart(1)
    clock.pass_by(9)
    pair[1].send(b"x")
    assert (incoming.receive(10), incoming.begun) == (b"x", 2)
    clock.pass_by(1)
    pair[1].send(b"x")
    with pytest.raises(TimedOutError, match="no whole line or message for 10 seconds"):
        incoming.receive(10)


def test_a_sender_that_may_rest_gets_its_time_when_it_begins(pair):
    clock = Clock()
    incoming = connections.Incoming(pair[0], 10, may_rest=True, clock=clock)
    for _ in range(2):
        clock.pass_by(1000)
        pair[1].send(b"x")
        assert incoming.receive(10) == b"x"
        clock.pass_by(9)
        pair[1].send(b"y")
        assert incoming.receive(10) == b"y"
        incoming.restart()
    pair[1].send(b"x")
    assert incoming.receive(10) == b"x"
    clock.pass_by(10)
    with pytest.raises(TimedOutError):
        incoming.receive(10)
    pair[1].send(b"z" * 5)
    pair[1].shutdown(socket.SHUT_WR)
    assert incoming.drained() == 5


def test_what_is_thrown_away_is_waited_for_no_longer_than_idle(pair):
    incoming = connections.Incoming(pair[0], 0.01, may_rest=True)
    assert incoming.drained() == 0


@pytest.mark.parametrize("is_connect", [False, True])
def test_only_a_feed_that_connects_lets_its_sender_rest(listening, wait_for, clock, is_connect):
    with socket.create_server(("127.0.0.1", 0)) as server:
        feed = listening(port=server.getsockname()[1], connect=True) if is_connect else listening()
        with server.accept()[0] if is_connect else connected(feed):
            wait_for(lambda: clock.incoming)
            assert clock.incoming[0]._may_rest == is_connect
        feed.close()


def test_a_wait_of_many_days_is_made_of_hours(pair):
    class Readable:
        def __init__(self):
            self.waits = []

        def poll(self, milliseconds):
            self.waits.append(milliseconds)
            return len(self.waits) == 3

    incoming = connections.Incoming(pair[0], 1000 * 3600.0)
    pair[1].send(b"x")
    assert incoming.receive(10) == b"x"
    incoming._readable = Readable()
    pair[1].send(b"x")
    assert incoming.receive(10) == b"x"
    assert incoming._readable.waits == [3_600_000] * 3


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNRESET, errno.ENETDOWN])
def test_a_connection_that_fails_is_a_sender_that_is_gone(pair, number):
    class Failing:
        def fileno(self):
            return pair[0].fileno()

        def recv(self, *_):
            raise OSError(number, "gone")

    pair[1].send(b"x")
    assert connections.Incoming(Failing(), 10).receive(10) == b""


def test_a_silent_sender_is_reported_and_leaves_no_dead_letter(listening, clock, taken, answers, wait_for):
    feed = listening(idle=100)
    with connected(feed) as sender:
        sender.sendall(LINE)
        taken(feed, lambda rows, _: rows)
        wait_for(lambda: clock.pass_by(101) or feed.connections == 0)
        last = answers(sender)[-1]
    assert last["accepted"] == 1
    assert "no whole line or message for 100 seconds; send one, or raise idle" in last["error"]
    assert feed.read(0) is None


@pytest.mark.parametrize("format", ["json", "arrow"])
def test_a_sender_of_a_byte_at_a_time_cannot_stay(listening, clock, format, taken, wait_for, arrow_stream):  # noqa: A002 - the name of the option
    feed = listening(format, idle=100)
    begin = {"json": b"{", "arrow": arrow_stream(table(5))[:40]}[format]
    with connected(feed) as sender:
        sent = 0
        for part in (begin, b"x", b"x"):
            sender.sendall(part)
            sent += len(part)
            wait_for(lambda so_far=sent: clock.incoming and clock.incoming[0].begun == so_far)
            clock.pass_by(30)
        assert feed.read(0) is None
        clock.pass_by(10)
        _, letters = taken(feed, lambda _, letters: letters)
        wait_for(lambda: clock.pass_by(10) or feed.connections == 0)
    assert letters[0].text == ""
    assert "ended in mid-stream: no whole line or message for 100 seconds" in letters[0].reason


def test_a_sender_that_was_made_to_wait_is_not_taken_for_silent(
    listening, clock, monkeypatch, taken, answers, wait_for
):
    feed = listening(idle=100, waiting_bytes=1)
    calls, is_waiting, put = [], threading.Event(), feed._waiting.put

    def noticed(arrived):
        calls.append(arrived)
        if len(calls) == 2:  # nobody reads, so that this one has to wait
            is_waiting.set()
        put(arrived)

    monkeypatch.setattr(feed._waiting, "put", noticed)
    with connected(feed) as sender:
        sender.sendall(LINE * 200)
        wait_for(lambda: calls)
        sender.sendall(LINE * 200)
        assert is_waiting.wait(120)
        clock.pass_by(1000)
        sender.shutdown(socket.SHUT_WR)
        rows, letters = taken(feed, lambda rows, _: rows == 400)
        assert answers(sender)[-1] == {"accepted": 400}
    assert (len(rows), letters) == (400, [])


def test_what_waits_is_bounded_by_its_bytes(wait_for):
    waiting = connections.Waiting(10_000)

    def arrived(size):
        letters = [DeadLetter("x" * (size - connections._ENTRY_BYTES - connections._LETTER_BYTES - 3), "why")]
        return connections.Arrived(connections.Sender(None), 1, pa.table({}), letters)

    waiting.put(arrived(50_000))  # anything fits into nothing
    more = [threading.Thread(target=waiting.put, args=(arrived(6000),)) for _ in range(2)]
    for thread in more:
        thread.start()
    assert waiting.get(120).bytes == 50_000
    wait_for(lambda: sum(thread.is_alive() for thread in more) == 1)
    assert waiting.get(120).bytes == 6000
    for thread in more:
        thread.join(120)
    assert waiting.get(120).bytes == 6000
    assert waiting.get(0) is None


def test_an_entry_counts_with_its_columns_and_with_the_reasons_of_its_letters():
    sender, nothing = connections.Sender(None), pa.schema({"a": pa.int64(), "b": pa.int64()}).empty_table()
    plain = connections.Arrived(sender, 1, nothing).bytes
    assert plain >= 2000
    assert connections.Arrived(sender, 1, nothing, [DeadLetter("x" * 500, "y" * 700)]).bytes >= plain + 1200


def test_blank_lines_are_acknowledged_and_take_no_memory(listening, taken, answers, wait_for):
    feed = listening()
    with connected(feed) as sender:
        for number in range(1, 4):
            sender.sendall(b"\n \n" * 1000)
            wait_for(lambda so_far=2000 * number: reported(sender) == so_far)
        assert feed.read(0) is None
        sender.sendall(b"\n" + LINE + b"\n\n")
        sender.shutdown(socket.SHUT_WR)
        rows, letters = taken(feed, lambda rows, _: rows)
        assert answers(sender)[-1] == {"accepted": 6004}
    assert (len(rows), letters) == (1, [])


def reported(sender):
    """The last number that a sender was sent, of those that have come."""
    return json.loads(sender.recv(1 << 16).splitlines()[-1])["accepted"]


def test_blank_lines_are_accepted_with_what_was_sent_before_them(pair):
    sender = connections.Sender(pair[0])
    assert sender.queue(1) == 1
    sender.skip(5)
    assert (sender.sent, sender.accepted) == (6, 0)
    sender.accept(1)
    assert sender.accepted == 6
    assert sender.queue(1) == 1
    sender.skip(2)
    assert sender.queue(1) == 3
    sender.accept(1)
    assert sender.accepted == 7
    sender.accept(3)
    assert (sender.sent, sender.accepted) == (10, 10)
    sender.skip(1)
    assert sender.accepted == 11


@pytest.mark.parametrize("is_connect", [False, True])
def test_a_connection_that_is_made_while_the_feed_ends_ends_too(listening, answers, monkeypatch, is_connect):
    is_made, go = threading.Event(), threading.Event()
    make = socket.create_connection if is_connect else socket.socket.accept

    def late(*given, **options):
        made = make(*given, **options)
        is_made.set()
        assert go.wait(120)
        return made

    with socket.create_server(("127.0.0.1", 0)) as server:
        if is_connect:
            monkeypatch.setattr("equipoise.microbatch.socket_feed.socket.create_connection", late)
            feed = listening(port=server.getsockname()[1], connect=True)
            sender, _ = server.accept()
        else:
            monkeypatch.setattr(socket.socket, "accept", late)
            feed = listening()
            sender = connected(feed)
        with sender:
            assert is_made.wait(120)
            feed.close()
            go.set()
            assert answers(sender) == []
    assert feed.connections == 0


def test_a_connection_that_cannot_be_read_makes_room_for_another(
    listening, monkeypatch, caplog, taken, answers, wait_for
):
    feed = listening(connections=1)

    def failing(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("equipoise.microbatch.socket_feed.Incoming", failing)
        with connected(feed) as sender:
            assert answers(sender) == []
    wait_for(lambda: feed.connections == 0)
    assert "a connection could not be read" in caplog.text
    with connected(feed) as sender:
        sender.sendall(LINE)
        assert len(taken(feed, lambda rows, _: rows)[0]) == 1


def test_a_thread_that_cannot_be_started_makes_room_for_another(listening, monkeypatch, taken, answers):
    feed = listening(connections=1)
    start, failed = threading.Thread.start, []

    def failing(thread):
        if not failed:
            failed.append(thread)
            raise MemoryError
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", failing)
        with connected(feed) as sender:
            assert answers(sender) == []
        with connected(feed) as sender:
            sender.sendall(LINE)
            assert len(taken(feed, lambda rows, _: rows)[0]) == 1
    assert len(failed) == 1


def test_a_long_line_is_reported_with_what_to_do(listening, taken, answers):
    feed = listening(line_bytes=1000)
    with connected(feed) as sender:
        sender.sendall(LINE + b"{" + b"x" * 5000)
        rows, letters = taken(feed, lambda _, letters: letters)
        last = answers(sender)[-1]
    assert len(rows) == 1
    assert "after 1 lines or rows: a line has more than 1,000 bytes and begins with '{xxx" in letters[0].reason
    assert last["accepted"] == 1
    assert "send shorter lines, or raise lineBytes" in last["error"]


def test_a_message_of_too_many_rows_is_reported_and_those_before_it_are_kept(listening, taken, answers, arrow_stream):
    feed = listening("arrow", message_rows=100)
    data = arrow_stream(table(100), table(101), table(5), compression="zstd")
    with connected(feed) as sender:
        sender.sendall(data)
        sender.shutdown(socket.SHUT_WR)
        rows, letters = taken(feed, lambda _, letters: letters)
        last = answers(sender)[-1]
    assert len(rows) == 100
    assert "after 100 lines or rows: message 3 has 101 rows, and at most 100 were expected" in letters[0].reason
    assert last["accepted"] == 100
    assert "send smaller record batches" in last["error"]


def test_bytes_behind_the_end_of_a_stream_are_reported(listening, taken, answers, arrow_stream):
    feed = listening("arrow")
    with connected(feed) as sender:
        sender.sendall(arrow_stream(table(3)) * 2)
        sender.shutdown(socket.SHUT_WR)
        rows, letters = taken(feed, lambda _, letters: letters)
        assert answers(sender)[-1] == {"accepted": 3}
    assert len(rows) == 3
    assert "bytes follow the end of the stream" in letters[0].reason


def test_an_arrow_sender_that_waits_for_its_last_acknowledgement_gets_it(listening, taken, answers, arrow_stream):
    feed = listening("arrow")
    with connected(feed) as sender:
        sender.sendall(arrow_stream(table(3)))  # and does not end its side
        taken(feed, lambda rows, _: rows == 3)
        assert answers(sender)[-1] == {"accepted": 3}


def test_senders_notice_that_the_feed_ends(listening, answers, wait_for):
    feed = listening()
    with connected(feed) as sender:
        wait_for(lambda: feed.connections == 1)
        feed.close()
        assert answers(sender) == []
    wait_for(lambda: feed.connections == 0)


def test_a_failure_of_our_own_is_reported_and_other_senders_go_on(listening, monkeypatch, caplog, taken, answers):
    feed = listening()

    def broken(*_):
        raise ZeroDivisionError("no more")

    with monkeypatch.context() as patch, connected(feed) as sender:
        patch.setattr("equipoise.microbatch.socket_feed.parse_lines", broken)
        sender.sendall(LINE)
        _, letters = taken(feed, lambda _, letters: letters)
        assert answers(sender)[-1]["accepted"] == 0
    assert "ZeroDivisionError: no more; report this as a bug" in letters[0].reason
    assert "reading from" in caplog.text
    with connected(feed) as sender:
        sender.sendall(LINE)
        assert len(taken(feed, lambda rows, _: rows)[0]) == 1


@pytest.mark.parametrize(
    "limits", [{"connections": 0}, {"idle": 0}, {"line_bytes": -1}, {"message_rows": 1.5}, {"waiting_bytes": "x"}]
)
def test_limits_that_cannot_be_are_reported(limits):
    [name] = limits
    with pytest.raises(InvalidArgumentError, match=name):
        Limits(**limits)


def test_options_of_the_data_source_set_the_limits():
    options = {"connections": "3", "waitingbytes": "4", "linebytes": "5", "messagerows": "6", "messagebytes": "7"}
    options |= {"idle": "2 minutes", "feed": "socket", "port": "0"}
    assert options.keys() <= _OPTIONS
    assert _feed(options, SCHEMA, {})._limits == Limits(3, 120.0, 4, 5, 6, 7)
    assert _feed({"feed": "connect"}, SCHEMA, {})._limits == Limits()
    with pytest.raises(InvalidArgumentError, match="option lineBytes must be a number, got 'long'"):
        _feed(options | {"linebytes": "long"}, SCHEMA, {})


def test_a_schema_that_json_cannot_have_is_reported():
    with pytest.raises(InvalidArgumentError, match=r"format json cannot read this schema: .*map.*; use format arrow"):
        SocketFeed(pa.schema({"m": pa.map_(pa.string(), pa.int64())}))


@pytest.fixture
def patient(monkeypatch):
    """A machine under load may plan late as often as it likes."""
    monkeypatch.setattr("equipoise.microbatch.receiver._LATE_BATCHES", 1_000_000)


@pytest.mark.usefixtures("patient")
def test_batches_are_sealed_and_others_received_while_bad_lines_are_parsed(tmp_path, monkeypatch, answers, wait_for):
    is_parsing, go = threading.Event(), threading.Event()

    def parse(lines, schema):
        if b"slow" in lines[0]:
            is_parsing.set()
            assert go.wait(120)
        return parse_lines(lines, schema)

    monkeypatch.setattr("equipoise.microbatch.socket_feed.parse_lines", parse)
    feed = SocketFeed(SCHEMA)
    receiver = Receiver(Spool(tmp_path), feed, SCHEMA, Cutting(("word",), 0.1, blocks=2))
    receiver.start()
    bad, good = 1000, 50
    with connected(feed) as sender, connected(feed) as other:
        sender.sendall(b'{"n": "slow"}\n' * bad)
        sender.shutdown(socket.SHUT_WR)
        assert is_parsing.wait(120)
        sealed = receiver.sealed
        other.sendall(LINE * good)
        other.shutdown(socket.SHUT_WR)
        assert answers(other)[-1] == {"accepted": good}
        wait_for(lambda: receiver.sealed > sealed + 1)
        go.set()
        assert answers(sender)[-1] == {"accepted": bad}
    wait_for(lambda: receiver._spool.dead_letter_count == bad)
    wait_for(lambda: sum(line["rows"] for line in Spool(tmp_path).batch_lines()) == good)
    receiver.stop()
    assert len(Spool(tmp_path).dead_letters()) == bad


@pytest.mark.usefixtures("patient")
def test_dead_letters_that_are_only_counted_are_warned_of_once(tmp_path, monkeypatch, caplog, answers, wait_for):
    monkeypatch.setattr("equipoise.microbatch.spool._DEAD_LETTERS_BYTES", 10)
    feed = SocketFeed(SCHEMA)
    receiver = Receiver(Spool(tmp_path), feed, SCHEMA, Cutting(("word",), 0.1))
    receiver.start()
    for number in range(1, 5):
        with connected(feed) as sender:
            sender.sendall(b"nonsense\n")
            sender.shutdown(socket.SHUT_WR)
            assert answers(sender)[-1] == {"accepted": 1}
        wait_for(lambda number=number: receiver._spool.dead_letter_count == number)
    receiver.stop()
    assert caplog.text.count("further ones are only counted") == 1
    assert len(Spool(tmp_path).dead_letters()) == 1


def test_a_sender_that_reads_nothing_keeps_nobody_waiting(listening, clock, monkeypatch, taken, wait_for):
    monkeypatch.setattr(connections, "_LAST_WORD", 3600.0)  # whoever waits for it waits for longer than the test
    feed = listening(idle=100)
    feed._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", feed.port))
        is_full = False
        while not is_full:
            deaf.sendall(LINE)
            arrived = feed._waiting.get(120)
            arrived.sender.accept(arrived.count)
            is_full = bool(arrived.sender._unsent)
        deaf.sendall(b"{")  # a line that never ends: the connection is ended, and cannot say so
        wait_for(lambda: clock.incoming[0].begun == 1)
        clock.pass_by(100)
        taken(feed, lambda _, letters: letters)
        with connected(feed) as other:
            other.sendall(LINE)
            taken(feed, lambda rows, _: rows)
