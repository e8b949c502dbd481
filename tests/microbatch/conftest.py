"""A socket feed and its senders, for tests of the feed and of its limits."""

import json
import time
from contextlib import suppress

import pyarrow as pa
import pytest

from equipoise.microbatch.socket_feed import Limits, SocketFeed

TEXT = pa.schema({"word": pa.string(), "n": pa.int64()})


@pytest.fixture
def listening():
    """Makes feeds of words and numbers that are open, and closes them at the end."""
    feeds = []

    def make(format="json", *, port=0, connect=False, patience=30.0, **limits):  # noqa: A002 - the name of the option
        feed = SocketFeed(TEXT, port=port, format=format, connect=connect, patience=patience, limits=Limits(**limits))
        feed.open(None)
        feeds.append(feed)
        return feed

    yield make
    for feed in feeds:
        feed.close()


@pytest.fixture
def wait_for():
    """Waits for a condition."""

    def wait(condition, seconds=120):
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"it did not come about within {seconds} seconds"
            time.sleep(0.005)

    return wait


@pytest.fixture
def taken():
    """Takes and acknowledges tuples of a feed until there are enough; gives a table and the dead letters."""

    def take(feed, is_enough, seconds=120):
        tables, letters, until = [TEXT.empty_table()], [], time.monotonic() + seconds
        while not is_enough(sum(map(len, tables)), letters):
            assert time.monotonic() < until, f"only {tables} and {letters} came within {seconds} seconds"
            chunk = feed.read(0.01)
            if chunk is not None:
                tables.append(chunk.table)
                letters += chunk.dead_letters
                chunk.acknowledge()
        return pa.concat_tables(tables), letters

    return take


@pytest.fixture
def answers():
    """Reads a connection to its end; gives the lines that a sender reads."""

    def read(connection):
        data = b""
        connection.settimeout(120)
        with suppress(ConnectionError):
            while received := connection.recv(4096):
                data += received
        return [json.loads(line) for line in data.splitlines()]

    return read


@pytest.fixture(scope="session")
def arrow_stream():
    """Writes tables as one Arrow stream."""

    def write(*tables, **options):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, tables[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            for table in tables:
                writer.write_table(table)
        return sink.getvalue().to_pybytes()

    return write
