"""Decides which HTTP requests reach a handler, by their heads, before any body is read.

    Host      must be a name of this server: with DNS rebinding, a foreign page's name resolves to this address
    Origin    must be the server's own, if a browser sends one: pages of other sites may neither read nor write
    TLS       if it is required
    password  HTTP Basic, for all paths but /health

Keeps true: only the head of a rejected request is read.  Secrets are compared in constant time.
"""

from __future__ import annotations

import base64
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request

from noria.accounts.logins import Login, Logins
from noria.core import limits
from noria.core.errors import SqlError
from noria.core.errors.codes import (
    ACCESS_DENIED,
    ACCOUNT_HAS_BEEN_LOCKED,
    MUST_CHANGE_PASSWORD_LOGIN,
    SECURE_TRANSPORT_REQUIRED,
    UNKNOWN_ERROR,
)
from noria.server.access.login_check import LoginCheck
from noria.server.logins import Attempt, LoginGuard, TooManyLogins


class HttpError(SqlError):
    """An error with an HTTP status of its own."""

    def __init__(self, status: int, code: int, state: str, message: str, headers: dict[str, str] | None = None):
        super().__init__(code, state, message)
        self.status, self.headers = status, headers or {}


@dataclass(frozen=True)
class RequestPolicy:
    """names: further names of the server, in lower case.  tls_required: requests without TLS are rejected."""

    names: frozenset[str] = frozenset()
    tls_required: bool = False

    @classmethod
    def of(cls, names: Iterable[str], tls_required: bool = False) -> RequestPolicy:
        return cls(frozenset(n.lower().rstrip(".") for n in names), tls_required)


def check(request: Request, policy: RequestPolicy) -> None:
    """Check Host, Origin and TLS.  Raises Refused."""
    host = one_header(request, "host")
    if host is not None and not _is_ours(host, request, policy):
        raise HttpError(403, *UNKNOWN_ERROR,
                        f"this server is not known as '{host[:100]}': use its address, or start it "
                                           "with --http-name NAME")
    origin = one_header(request, "origin")
    if origin is not None and not _is_same(origin, host):
        raise HttpError(403, *UNKNOWN_ERROR, f"a page of the origin '{origin[:100]}' may not use this server")
    if policy.tls_required and request.scope["scheme"] != "https":
        raise HttpError(403, *SECURE_TRANSPORT_REQUIRED, "Connections using insecure transport are prohibited: this "
                                                       "server was started with --tls-require; use https://")


class RequestFilter:
    """Checks the requests to one server, with their password.  Earlier wrong passwords may delay a request."""

    def __init__(self, policy: RequestPolicy, guard: LoginGuard):
        self._policy, self._guard = policy, guard
        self._passwords = LoginCheck()
        # connections that sent the right password, with its user
        self._proven: OrderedDict[tuple[str, int, str], None] = OrderedDict()

    async def check(self, request: Request, logins: Logins | None, user: str = "") -> str:
        """Check a request, and return its account, user@host; "" for a request that needs none.

        logins: the accounts; None for no login.  user: of a request without credentials.  Raises Refused."""
        check(request, self._policy)
        return "" if logins is None else await self._log_in(request, logins, user)

    async def _log_in(self, request: Request, logins: Logins, user: str) -> str:
        """Check the password.  A connection that sent the right one before does not wait for others' wrong ones."""
        credentials = _credentials(request)
        peer = (request.client.host, request.client.port) if request.client is not None else ("", 0)
        named, _, clear = (credentials or user.encode()).partition(b":")
        name, password = named.decode(errors="replace"), clear.decode(errors="replace")
        login = logins.find(name, peer[0])
        if login is None and logins.everyone:
            return ""
        if credentials is None and (login is None or login.secret):
            raise _unauthorized("a user and a password are needed (HTTP Basic)")
        place = (*peer, name)
        if place not in self._proven or not self._admits(login, password):
            self._proven.pop(place, None)
            attempt = self._turn(peer[0], name)
            if attempt.wait_s:
                await self._guard.sleep(attempt.wait_s)
            if login is None or not self._admits(login, password):
                attempt.failed("HTTP", bool(clear))
                raise _unauthorized("wrong user or password")
            attempt.passed()
        assert login is not None
        if login.locked:
            raise HttpError(403, *ACCOUNT_HAS_BEEN_LOCKED, f"Access denied for user '{name}'@'{peer[0]}'. Account is "
                                                           "locked.")
        if login.expires_at <= time.time():
            raise HttpError(403, *MUST_CHANGE_PASSWORD_LOGIN, "Your password has expired. To log in you must change it "
                                                              "using a client that supports expired passwords.")
        self._proven[place] = None
        if len(self._proven) > limits.HTTP_CONNECTIONS:
            self._proven.popitem(last=False)
        return login.name.plain

    def _admits(self, login: Login | None, password: str) -> bool:
        return login is not None and self._passwords.admits(login, password)

    def _turn(self, address: str, user: str) -> Attempt:
        try:
            return self._guard.attempt(address, user)
        except TooManyLogins as e:
            raise HttpError(429, e.code, e.state, e.message, {"Retry-After": str(e.again_s)}) from None


def _unauthorized(why: str) -> HttpError:
    return HttpError(401, *ACCESS_DENIED, why, {"WWW-Authenticate": 'Basic realm="noria"'})


def one_header(request: Request, name: str) -> str | None:
    """Return a header, or None.  Raises Refused if it occurs twice.  Only clients older than HTTP/1.1 omit Host, and no
    browser is among them."""
    found = request.headers.getlist(name)
    if len(found) > 1:
        raise HttpError(400, *UNKNOWN_ERROR, f"the header {name.title()} is there {len(found)} times")
    return found[0] if found else None


def _is_ours(host: str, request: Request, policy: RequestPolicy) -> bool:
    name = host_name(host)
    if name is None:
        return False
    served = request.scope.get("server")
    if name == "localhost" or name in policy.names or (served is not None and name == served[0]):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str | None:
    """Return the name or address in a Host header, without the port; None if it has neither.

    >>> host_name("LocalHost:8080"), host_name("[::1]:80"), host_name("a@b"), host_name("a:b")
    ('localhost', '::1', None, None)
    """
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises if it is no number
    except ValueError:
        return None
    if parts.netloc != host or parts.username is not None or not parts.hostname:
        return None
    return parts.hostname.rstrip(".")


def _is_same(origin: str, host: str | None) -> bool:
    scheme, _, place = origin.lower().partition("://")
    return scheme in ("http", "https") and host is not None and place == host.lower()


def user_of(request: Request) -> str:
    """Return the user of the request's HTTP Basic header; "" without one."""
    return (_credentials(request) or b"").partition(b":")[0].decode(errors="replace")


def _credentials(request: Request) -> bytes | None:
    """Return `user:password` of the request; None if it has no valid HTTP Basic header."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except ValueError:  # also for letters that are not ASCII
        return None


__all__ = ["HttpError", "RequestFilter", "RequestPolicy", "host_name", "one_header", "user_of"]
