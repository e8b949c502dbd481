"""The server answers four addresses to those who may ask, and nothing else to anybody."""

import base64
import hashlib
import http.client
import json
import re
import socket
import threading
import time
from contextlib import closing, suppress
from importlib.metadata import distribution
from pathlib import Path

import pytest

from equipoise import InvalidArgumentError, ServerError
from equipoise.dashboard import DashboardServer, Watcher, server


def ask(serving, path="/", method="GET", headers=None, host="127.0.0.1"):
    """Status, headers and body of one request; ``headers`` in place of the usual ones."""
    with closing(http.client.HTTPConnection("127.0.0.1", serving.server_port, timeout=120)) as connection:
        connection.putrequest(method, path, skip_host=True)
        for name, value in ({"Host": host} if headers is None else headers).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def raw(serving, request):
    """Whatever comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", serving.server_port), timeout=120) as line:
        line.sendall(request)
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(65536), b""))


@pytest.fixture
def serving(serve, lived):
    return serve(lived)


def test_the_four_addresses(serving):
    status, headers, page = ask(serving)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"<h1>equipoise</h1>" in page
    status, headers, data = ask(serving, "/data")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(data)["batches"][-1]["batch"] == 25
    status, headers, text = ask(serving, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"\nequipoise_batch 25\n" in text


def test_the_page_needs_nothing_from_elsewhere_and_the_policy_knows_its_parts(serving):
    _, headers, body = ask(serving)
    page = body.decode()
    assert not re.search(r"""(src|href)=["'](https?:)?//""", page)
    assert "innerHTML" not in page
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    parts = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", page, re.DOTALL)
    assert len(parts) == 4
    for part in parts:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" in policy
    assert " style=" not in page
    assert not re.search(r"\son\w+=", page)
    for name, value in (
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
        ("Referrer-Policy", "no-referrer"),
    ):
        assert headers[name] == value


@pytest.mark.parametrize(
    "path",
    [
        "/nothing", "/data/", "/./data", "/index.html", "/page/app.js", "/..", "/../query", "/%2e%2e/query",
        "/data/../query", "/query", "/log", "/etc/passwd", "//etc/passwd", "http://127.0.0.1/data", "/%00", "/data%00",
        "/favicon.ico", "*", "/grafana.json",
    ],
)  # fmt: skip
def test_there_is_nothing_else(serving, path):
    status, headers, body = ask(serving, path)
    assert status == 404
    assert headers["Content-Type"].startswith("text/plain")
    assert b"EQP" not in body
    assert b"root:" not in body


def test_nothing_of_a_request_reaches_the_file_system(serving, monkeypatch):
    ask(serving)
    opened = []
    monkeypatch.setattr("builtins.open", lambda *given, **_: opened.append(given) or pytest.fail("opened a file"))
    monkeypatch.setattr(Path, "open", lambda *given, **_: opened.append(given) or pytest.fail("opened a file"))
    for path in ("/../query", "/", "/?file=query&token=../query", "/nothing"):
        assert ask(serving, path)[0] in {200, 404}
    assert not opened


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_only_get_is_answered(serving, method):
    status, headers, _ = ask(serving, "/data", method)
    assert (status, headers["Allow"]) == (405, "GET")


def test_a_method_that_nobody_knows_and_a_request_that_is_none(serving):
    assert ask(serving, "/data", "BREW")[0] == 501
    assert b"400" in raw(serving, b"\x16\x03\x01\r\n\r\n")
    assert b" 414 " in raw(serving, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n")
    assert ask(serving, "/data")[0] == 200


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1:8484", "[::1]", "[::1]:99"])
def test_names_of_this_machine_are_known(serving, host):
    assert ask(serving, "/data", host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8484", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1@evil.example",
     "evil.example/127.0.0.1", "", "0.0.0.1", "localhost:port", "[::1", "localhost evil"],
)  # fmt: skip
def test_another_name_is_refused(serving, host):
    for path in ("/", "/data", "/events", "/metrics", "/nothing"):
        status, _, body = ask(serving, path, host=host)
        assert status == 403
        assert b"--allow-host" in body


def test_no_host_and_two_hosts_are_refused(serving):
    assert ask(serving, "/data", headers={})[0] == 403
    answer = raw(serving, b"GET /data HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403")


def test_a_name_that_was_allowed_is_known(serve, lived):
    allowing = serve(lived, allow_hosts=["Metrics.Example"])
    assert ask(allowing, "/data", host="metrics.example:80")[0] == 200
    assert ask(allowing, "/data", host="other.example")[0] == 403


def test_the_token_is_asked_for_everywhere(serve, lived):
    guarded = serve(lived, token="a b+c")  # noqa: S106 - of this test
    assert guarded.url.endswith("/?token=a%20b%2Bc")
    for path in ("/", "/data", "/events", "/metrics", "/nothing"):
        status, headers, body = ask(guarded, path)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert b"token" in body
    assert ask(guarded, "/data?token=a%20b%2Bc")[0] == 200
    assert ask(guarded, "/data", headers={"Host": "localhost", "Authorization": "Bearer a b+c"})[0] == 200
    for wrong in (
        "/data?token=",
        "/data?token=a",
        "/data?token=a%20b%2Bcc",
        "/data?token=%FF",
        "/data?other=a%20b%2Bc",
    ):
        assert ask(guarded, wrong)[0] == 401
    for given in ("Basic a b+c", "Bearer", "Bearer wrong", "a b+c"):
        assert ask(guarded, "/data", headers={"Host": "localhost", "Authorization": given})[0] == 401
    assert ask(guarded, "/data?token=a%20b%2Bc", host="evil.example")[0] == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org"])  # noqa: S104 - they are refused
def test_elsewhere_than_on_loopback_a_token_is_needed(lived, host):
    with pytest.raises(InvalidArgumentError, match=r"needs a token; give --token, or stay on 127\.0\.0\.1"):
        DashboardServer(Watcher(lived), host)
    with pytest.raises(InvalidArgumentError, match="needs a token"):
        DashboardServer(Watcher(lived), host, token="")


def test_a_port_that_is_taken_is_reported(serving, lived):
    with pytest.raises(ServerError, match=rf"cannot listen on 127\.0\.0\.1 port {serving.server_port}: .*--port 0"):
        DashboardServer(Watcher(lived), port=serving.server_port)


def test_it_listens_on_ipv6_loopback_too(serve, lived):
    try:
        serving = serve(lived, host="::1")
    except ServerError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    connection = http.client.HTTPConnection("::1", serving.server_port, timeout=120)
    connection.request("GET", "/data")
    assert connection.getresponse().status == 200
    connection.close()
    assert serving.url == f"http://[::1]:{serving.server_port}/"


class Listener:
    """Events as they come."""

    def __init__(self, serving):
        self.connection = http.client.HTTPConnection("127.0.0.1", serving.server_port, timeout=120)
        self.connection.request("GET", "/events")
        self.answer = self.connection.getresponse()

    def event(self):
        fields = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields

    def snapshot(self):
        while True:
            fields = self.event()
            assert fields or not self.answer.closed, "the stream ended"
            if fields.get("event") == "snapshot":
                return json.loads(fields["data"])

    def until(self, condition):
        """Wait for a snapshot; a batch may be in several, for example before and after its delivery."""
        while not condition(self.snapshot()):
            pass

    def close(self):
        self.answer.close()
        self.connection.close()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(server, "_LOOK_EVERY", 0.02)


@pytest.mark.usefixtures("quick")
def test_events_tell_of_a_batch_when_it_is_committed(serve, story):
    listener = Listener(serve(story.play(1).folder))
    assert listener.answer.getheader("Content-Type") == "text/event-stream"
    assert listener.event() == {"retry": "2000"}
    assert listener.snapshot()["batches"][-1]["batch"] == 0
    story.play(1)
    listener.until(lambda snapshot: snapshot["batches"][-1]["batch"] == 1)
    story.query.close()
    listener.until(lambda snapshot: snapshot["status"] == "finished")
    listener.close()


@pytest.mark.usefixtures("quick")
def test_a_listener_without_news_learns_that_the_server_is_there(serve, lived, monkeypatch):
    monkeypatch.setattr(server, "_HEARTBEAT", 0.05)
    listener = Listener(serve(lived))
    listener.snapshot()
    assert listener.event() == {"": "still here"}
    listener.close()


@pytest.mark.usefixtures("quick")
def test_too_many_listeners_are_refused_until_one_leaves(serve, lived, monkeypatch):
    monkeypatch.setattr(server, "LISTENERS", 2)
    monkeypatch.setattr(server, "_HEARTBEAT", 0.0)
    serving = serve(lived)
    first, second = Listener(serving), Listener(serving)
    assert first.snapshot() == second.snapshot()
    assert ask(serving, "/events")[0] == 503
    first.close()
    until = time.monotonic() + 120
    while (third := Listener(serving)).answer.status == 503 and time.monotonic() < until:
        time.sleep(0.05)
    assert third.snapshot()["status"] == "finished"
    second.close()
    third.close()


@pytest.mark.usefixtures("quick")
def test_stopping_ends_the_streams_and_frees_the_port(lived):
    serving = DashboardServer(Watcher(lived))
    thread = serving.start()
    listener = Listener(serving)
    listener.snapshot()
    serving.stop()
    thread.join(120)
    assert not thread.is_alive()
    assert listener.answer.read() == b""
    listener.close()
    again = DashboardServer(Watcher(lived), port=serving.server_port)
    again.server_close()


def test_what_has_changed_is_reported_before_the_end(story, monkeypatch):
    monkeypatch.setattr(server, "_LOOK_EVERY", 60.0)
    serving = DashboardServer(Watcher(story.play(1).folder, pause=0))
    serving.start()
    listener = Listener(serving)
    assert len(listener.snapshot()["batches"]) == 1
    story.play(1)
    serving.stop()
    listener.until(lambda snapshot: len(snapshot["batches"]) == 2)
    assert listener.answer.read() == b""
    listener.close()


def test_many_may_ask_at_once(serving):
    found = []
    threads = [threading.Thread(target=lambda: found.append(ask(serving, "/data"))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({body for _, _, body in found}) == 1
    assert {status for status, _, _ in found} == {200}


def test_the_page_is_part_of_the_package():
    assert distribution("equipoise").version
    folder = Path(server.__file__).parent
    assert {path.name for path in (folder / "page").iterdir()} == {
        "index.html", "style.css", "format.js", "charts.js", "app.js",
    }  # fmt: skip


def test_an_address_that_is_none_is_answered(serving):
    with socket.create_connection(("127.0.0.1", serving.server_port), timeout=120) as client:
        client.sendall(b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 400 " in client.recv(1000)


def test_more_clients_than_there_is_room_for_are_turned_away(serving):
    for _ in range(server.CLIENTS - 1):
        assert serving._clients.acquire(blocking=False)
    address = ("127.0.0.1", serving.server_port)
    with (
        socket.create_connection(address, timeout=120) as first,
        socket.create_connection(address, timeout=120) as second,
    ):
        assert second.recv(1) == b"", "closed without an answer"
        first.sendall(b"GET /data HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert first.recv(12) == b"HTTP/1.1 200"


def wait_until(holds):
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until, "it did not come about within 120 seconds"
        time.sleep(0.02)


def answered(serving):
    """Whether a new client gets the data; one for whom there is no room is turned away."""
    try:
        return ask(serving, "/data")[0] == 200
    except (ConnectionError, http.client.HTTPException):
        return False


@pytest.fixture
def connect():
    """Opens connections to a server; they stay open until the test ends."""
    lines = []

    def open_one(serving, request=b""):
        lines.append(socket.create_connection(("127.0.0.1", serving.server_port), timeout=120))
        lines[-1].sendall(request)
        return lines[-1]

    yield open_one
    for line in lines:
        line.close()


def is_closed(line):
    try:
        return line.recv(1) == b""
    except ConnectionError:
        return True


def test_requests_that_do_not_end_make_room_after_the_deadline(serve, lived, monkeypatch, connect):
    monkeypatch.setattr(server, "CLIENTS", 9)
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.5)
    serving = serve(lived)
    half = [
        connect(serving, start) for start in (b"", b"GET /data HTTP/1.1\r\n", b"GET /data HTTP/1.1\r\nHost: loc") * 3
    ]
    done = threading.Event()

    def dribble():
        while not done.wait(0.02):
            for line in half[::2]:
                with suppress(OSError):  # closed by now
                    line.send(b"a")

    thread = threading.Thread(target=dribble)
    thread.start()
    try:
        wait_until(lambda: answered(serving))
        assert all(is_closed(line) for line in half)
    finally:
        done.set()
        thread.join()


def test_a_connection_that_idles_after_an_answer_is_closed(serve, lived, monkeypatch, connect):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 1.0)
    line = connect(serve(lived), 2 * b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    found = b"".join(iter(lambda: line.recv(65536), b""))
    assert found.count(b"HTTP/1.1 200") == 2
    assert b"Connection: close" not in found, "the server waits for a third request"


def test_a_client_for_whom_no_thread_can_be_started_leaves_its_place(serving, monkeypatch):
    def failing(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, socket.socket() as request:
        patch.setattr(threading.Thread, "start", failing)
        for _ in range(server.CLIENTS + 1):
            with pytest.raises(RuntimeError, match="can't start"):
                serving.process_request(request, ("127.0.0.1", 0))
    assert answered(serving)


@pytest.mark.usefixtures("quick")
def test_a_listener_that_does_not_read_makes_room(serve, lived, monkeypatch, connect):
    monkeypatch.setattr(server, "LISTENERS", 1)
    monkeypatch.setattr(server, "_LISTENING_SECONDS", 0.5)
    serving = serve(lived)
    connect(serving, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    listeners = []

    def admitted():
        listeners.append(Listener(serving))
        return listeners[-1].answer.status == 200

    wait_until(admitted)
    assert listeners[-1].snapshot()["status"] == "finished"
    rest = listeners[-1].answer.read()
    assert rest.endswith(b"retry: 100\n\n"), "the page asks again at once"
    for each in listeners:
        each.close()


def test_a_listener_whose_buffers_are_full_makes_room(serve, lived, monkeypatch, connect):
    monkeypatch.setattr(server, "LISTENERS", 1)
    monkeypatch.setattr(server, "_LOOK_EVERY", 0.0)
    monkeypatch.setattr(server, "_ANSWER_SECONDS", 0.5)
    serving = serve(lived)
    seen, reported = serving.watcher.look(), []

    def look():
        reported.append(seen._replace(number=len(reported), json=b"[%s]" % bytes(1_000_000)))
        return reported[-1]

    monkeypatch.setattr(serving.watcher, "look", look)
    connect(serving, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until(lambda: reported and serving.listeners._value == 1)
    assert len(reported) > 1
