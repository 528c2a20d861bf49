"""Binds listening sockets before anything slow starts: a taken port is reported at once, and kept meanwhile.

Clients that connect before the server serves wait.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from noria.core import limits


class CannotListen(Exception):
    """The address that cannot be listened on: which option gave it, and why."""


def listening(host: str, port: int, options: str, shared: bool = False) -> socket.socket:
    """A listening socket.  options: the names of those that say where, for the message; shared: with other processes
    of this user, the kernel gives each client to one of them."""
    return _tried(host, port, options, lambda: _listening(_bound(host, port, shared)))


def check(host: str, port: int, options: str) -> None:
    """CannotListen where nobody could listen there now."""
    _tried(host, port, options, lambda: _bound(host, port, False)).close()


def reserved(host: str, port: int, options: str) -> socket.socket:
    """A socket that takes no clients and keeps its address for processes that listen there, `shared`."""
    return _tried(host, port, options, lambda: _reserved(host, port))


def _reserved(host: str, port: int) -> socket.socket:
    with _bound(host, port, False) as alone:  # nobody else is there, not even one who would share it
        port = alone.getsockname()[1]
    return _bound(host, port, True)


def _tried(host: str, port: int, options: str, get: Callable[[], socket.socket]) -> socket.socket:
    try:
        return get()
    except (OSError, UnicodeError) as e:
        why = getattr(e, "strerror", None) or e
        raise CannotListen(f"cannot listen on {host}:{port} ({options}): {why}") from e


def _listening(bound: socket.socket) -> socket.socket:
    try:
        bound.listen(limits.BACKLOG)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


def _bound(host: str, port: int, shared: bool) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # Of a name with addresses of both families the IPv4 one, which the ready line can give to every client.
    family, kind, protocol, _, address = sorted(found, key=lambda f: f[0] != socket.AF_INET)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


__all__ = ["CannotListen", "listening", "reserved"]
