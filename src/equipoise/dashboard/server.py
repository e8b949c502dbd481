"""A small read-only web server for one checkpoint; no part of a request is used as a path in the file system.

::

    /           the page, one file without external parts
    /data       the snapshot as JSON
    /events     server-sent events: a snapshot at once, and one after each change of the checkpoint
    /metrics    the same figures for Prometheus
"""

import io
import socket
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from equipoise import __version__
from equipoise.dashboard.access import Access
from equipoise.dashboard.metrics_text import CONTENT_TYPE, metrics_text
from equipoise.dashboard.page import page
from equipoise.dashboard.watcher import Seen, Watcher
from equipoise.errors import ServerError

LISTENERS = 32
"""Most pages that listen for events at a time."""

CLIENTS = 4 * LISTENERS
"""Most connections at a time."""

_REQUEST_SECONDS = 10.0  # from the connection, or the last answer, to the end of the request header
_ANSWER_SECONDS = 30.0  # for a client to receive an answer
_LISTENING_SECONDS = 600.0  # after which a stream of events ends; the page opens the next one
_TEXT = "text/plain; charset=utf-8"
_HEARTBEAT = 15.0  # seconds without news after which a listener gets a sign of life
_LOOK_EVERY = 1.0


class DashboardServer(ThreadingHTTPServer):
    """Serve the page of one checkpoint.

    Parameters
    ----------
    watcher
        Reads the checkpoint.
    host, port
        Address to listen on; port 0 takes a free one.
    token
        Token that clients must send; required unless the address is loopback.
    allow_hosts
        Further names by which clients reach the server.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = CLIENTS  # with the usual 5, a burst of clients waits for seconds to be accepted

    def __init__(
        self,
        watcher: Watcher,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        allow_hosts: Iterable[str] = (),
    ) -> None:
        self.watcher = watcher
        self.access = Access(host, token, allow_hosts)
        self.listeners = threading.BoundedSemaphore(LISTENERS)
        self._clients = threading.BoundedSemaphore(CLIENTS)
        self.stopping = threading.Event()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._host, self._token = host, token
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ServerError(
                f"cannot listen on {host} port {port}: {error}; choose another with --port, or --port 0 for a free one"
            ) from error

    def server_bind(self) -> None:
        """Bind without a reverse name lookup, which may take long without a network."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self._host), self.server_address[1]

    @property
    def url(self) -> str:
        """Address of the page, with the token if there is one."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.server_port}/" + (f"?token={quote(self._token, safe='')}" if self._token else "")

    @property
    def binds_all(self) -> bool:
        """Whether it listens on all addresses of the machine."""
        return self._host in {"0.0.0.0", "::"}  # noqa: S104 - a question, not a binding

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread; close the connection if ``CLIENTS`` are connected already."""
        if not self._clients.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._clients.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._clients.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error, unless the client closed the connection or timed out."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def start(self) -> threading.Thread:
        """Serve in a background thread until ``stop``."""
        thread = threading.Thread(target=self.serve_forever, name="equipoise-dashboard", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """End all answers and close the port; ``serve_forever`` must be running."""
        self.stopping.set()
        self.shutdown()
        self.server_close()


class _Incoming(io.RawIOBase):
    """Input of a client with one deadline for the whole request, however slowly it arrives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not end in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """Answers one client."""

    server: DashboardServer
    server_version, sys_version = f"equipoise/{__version__}", ""
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Read requests with a deadline for the whole request; a socket timeout would apply to each read."""
        super().setup()
        self.rfile.close()
        self._incoming = _Incoming(self.connection)
        self.rfile = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        """Answer a request that arrives in time."""
        self._incoming.deadline = time.monotonic() + _REQUEST_SECONDS
        super().handle_one_request()

    def do_GET(self) -> None:
        """Check host, token and path, and answer."""
        if self.headers.get("Content-Length") or self.headers.get("Transfer-Encoding"):
            self.close_connection = True  # the body is not read and must not be taken for the next request
        try:
            parts = urlsplit(self.path)
            asked = parse_qs(parts.query).get("token", [None])[0]
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, "the address cannot be parsed")
            return
        hosts = self.headers.get_all("Host", [])
        answer = {"/": self._page, "/data": self._data, "/events": self._events, "/metrics": self._metrics}
        if len(hosts) != 1 or not self.server.access.knows(hosts[0]):
            self._refuse(
                HTTPStatus.FORBIDDEN,
                "the Host header does not name this server; if it should, start it with --allow-host NAME",
            )
        elif not self.server.access.admits(asked, self.headers.get("Authorization")):
            self._refuse(
                HTTPStatus.UNAUTHORIZED,
                "send the token that the server was started with: ?token=... or Authorization: Bearer ...",
                {"WWW-Authenticate": "Bearer"},
            )
        elif parts.scheme or parts.netloc or parts.path not in answer:
            self._refuse(HTTPStatus.NOT_FOUND, f"no such page; there are {', '.join(answer)}")
        else:
            answer[parts.path]()

    def _only_get(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this server is read-only: use GET", {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _only_get  # noqa: N815 - as http.server names them

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request in plain text."""
        self._refuse(HTTPStatus(code), explain or message or HTTPStatus(code).phrase)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name belongs to http.server
        """Log nothing: requests may hold the token."""

    def _page(self) -> None:
        html, policy = page()
        self._send("text/html; charset=utf-8", html, {"Content-Security-Policy": policy})

    def _data(self) -> None:
        self._send("application/json", self.server.watcher.look().json)

    def _metrics(self) -> None:
        self._send(CONTENT_TYPE, metrics_text(self.server.watcher.look().snapshot, time.time()).encode())

    def _events(self) -> None:
        if not self.server.listeners.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{LISTENERS} pages are open already; close one")
            return
        try:
            with suppress(ConnectionError, TimeoutError):  # the page was closed
                self._send_events()
        finally:
            self.server.listeners.release()
            self.close_connection = True

    def _send_events(self) -> None:
        seen = self.server.watcher.look()
        self._head(HTTPStatus.OK, "text/event-stream", {"Connection": "close"})
        self.wfile.write(b"retry: 2000\n\n")
        self._send_event(seen)
        sent = time.monotonic()
        end = sent + _LISTENING_SECONDS
        stopping = False
        while not stopping:
            if time.monotonic() >= end:
                self.wfile.write(b"retry: 100\n\n")
                return
            stopping = self.server.stopping.wait(_LOOK_EVERY)  # sends the last change, then ends
            latest = self.server.watcher.look()
            if latest.number != seen.number:
                self._send_event(latest)
                seen, sent = latest, time.monotonic()
            elif time.monotonic() - sent >= _HEARTBEAT:
                self.wfile.write(b": still here\n\n")
                sent = time.monotonic()

    def _send_event(self, seen: Seen) -> None:
        self.wfile.write(b"id: %d\nevent: snapshot\ndata: %s\n\n" % (seen.number, seen.json))

    def _refuse(self, status: HTTPStatus, reason: str, headers: dict[str, str] | None = None) -> None:
        self._send(_TEXT, f"{status.value} {reason}\n".encode(), {"Connection": "close", **(headers or {})}, status)
        self.close_connection = True

    def _send(
        self, kind: str, body: bytes, headers: dict[str, str] | None = None, status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self._head(status, kind, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, headers: dict[str, str]) -> None:
        always = {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
        self.connection.settimeout(_ANSWER_SECONDS)
        self.send_response(status)
        for name, value in (always | headers).items():
            self.send_header(name, value)
        self.end_headers()
