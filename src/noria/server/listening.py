"""Binds listening sockets before slow parts of the server start.

A port that is taken is reported at once, and a bound port is kept.  Clients that connect before the server serves wait.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from noria.core import limits


class CannotListen(Exception):
    """The server cannot listen on an address.  The message names its option and the reason."""


def listening(host: str, port: int, options: str, shared: bool = False) -> socket.socket:
    """Return a listening socket.  options: the command's options for the address, for the error.

    shared: other processes of this user may listen there, too; the kernel passes each client to one of them.
    """
    return _tried(host, port, options, lambda: _listening(_bound(host, port, shared)))


def check(host: str, port: int, options: str) -> None:
    """Raise CannotListen if no process could listen on this address now."""
    _tried(host, port, options, lambda: _bound(host, port, False)).close()


def reserved(host: str, port: int, options: str) -> socket.socket:
    """Return a socket that accepts no clients.  It keeps its address for processes that listen there with `shared`."""
    return _tried(host, port, options, lambda: _reserved(host, port))


def _reserved(host: str, port: int) -> socket.socket:
    with _bound(host, port, False) as alone:  # fails if any other process uses the port, even a sharing one
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
    # If a name has addresses of both families, the IPv4 one is bound, since every client can use it.
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
