"""The live page of a query: ``equipoise dashboard CHECKPOINT``."""

import os
import sys
import webbrowser
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from equipoise.cli.output import Json, require_folder, write_json
from equipoise.errors import MissingPackageError
from equipoise.requirements import missing_text

if TYPE_CHECKING:
    from equipoise.dashboard import DashboardServer

PORT = 8484
"""Default port."""


def command(
    checkpoint: Annotated[
        str, typer.Argument(help="A query's checkpoint; the query may be running and is not disturbed.")
    ],
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other addresses than loopback need --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = PORT,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="EQUIPOISE_DASHBOARD_TOKEN",
            help="Token that clients must send, as ?token= or Authorization: Bearer.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name by which clients reach the server; may be given several times."),
    ] = None,
    literal_keys: Annotated[
        bool, typer.Option("--literal-keys", help="Show keys instead of their fingerprints.")
    ] = False,
    spool: Annotated[str | None, typer.Option(help="Spool of the source, for planned micro-batches.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json: Json = None,
) -> None:
    """Serve a live page about a query, with metrics for Prometheus, until Ctrl-C.

    With --json, write one snapshot and exit.
    """
    require_folder(json)
    require_pyarrow()
    from equipoise.dashboard import DashboardServer, Watcher

    watcher = Watcher(checkpoint, literal_keys=literal_keys, spool=spool)
    if json is not None:
        write_json(watcher.look().snapshot, json)
        return
    server = DashboardServer(watcher, host, port, token=token, allow_hosts=allow_host or ())
    thread, console = server.start(), Console(stderr=True)
    try:
        announce(server, console, open_page=open_page)
        while thread.is_alive():
            thread.join(1.0)
    except KeyboardInterrupt:
        console.print("stopped")
    finally:
        server.stop()


def require_pyarrow() -> None:
    """Raise ``MissingPackageError`` if pyarrow, which reads checkpoints, is not installed."""
    if find_spec("pyarrow") is None:
        raise MissingPackageError(missing_text("reading a checkpoint", "pyarrow", "dashboard"))


def announce(server: "DashboardServer", console: Console, *, open_page: bool) -> None:
    """Print the address of the page, and open it in a browser if asked and possible."""
    console.print(f"Dashboard: [bold]{escape(server.url)}[/]", soft_wrap=True, highlight=False)
    if server.binds_all:
        console.print("From other machines, replace the address by a name given with --allow-host.", highlight=False)
    if open_page and has_screen():
        webbrowser.open(server.url)


def has_screen() -> bool:
    """Whether a browser would open a window; without a screen it would take over the terminal."""
    if sys.platform != "linux":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
