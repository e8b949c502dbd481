"""Access control of the dashboard: the host names of the server, and the token.

A page of another site can make a browser send requests to a server on loopback, and by rebinding its own name to that
address even read the answers. Such requests carry the name of that site as their host, so requests for any other host
name are refused.
"""

import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from equipoise.errors import InvalidArgumentError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine that are always accepted."""


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    Examples
    --------
    >>> is_loopback("127.0.0.2"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """Decide which requests are answered.

    Parameters
    ----------
    host
        Address that the server is bound to.
    token
        Token that a client must send; ``None`` for none, which is allowed on loopback only.
    allow_hosts
        Further names by which clients reach the server.
    """

    def __init__(self, host: str, token: str | None = None, allow_hosts: Iterable[str] = ()) -> None:
        if not token and not is_loopback(host):
            raise InvalidArgumentError(
                f"{host} can be reached from other machines, so the page needs a token; give --token, or stay on "
                "127.0.0.1 and reach it through an SSH tunnel"
            )
        self._hosts = LOOPBACK | {name.lower() for name in (host, *allow_hosts)}
        self._token = token or None

    def knows(self, host: str | None) -> bool:
        """Whether a ``Host`` header names this server.

        Examples
        --------
        >>> access = Access("127.0.0.1")
        >>> access.knows("LOCALHOST:8080"), access.knows("[::1]:8080"), access.knows("evil.example"), access.knows(None)
        (True, True, False, False)
        """
        if host is None:
            return False
        try:
            parts = urlsplit(f"//{host}")
            parts.port  # noqa: B018 - raises ValueError if the port is not a number
        except ValueError:
            return False
        return parts.netloc == host and "@" not in host and (parts.hostname or "") in self._hosts

    def admits(self, asked: str | None, authorization: str | None) -> bool:
        """Whether a client sent the token, in the query string or as ``Authorization: Bearer``."""
        if self._token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        shown = [asked or "", given.strip() if scheme.lower() == "bearer" else ""]
        return max(
            hmac.compare_digest(each.encode(), self._token.encode()) for each in shown
        )  # compares both, in constant time
