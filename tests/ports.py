"""Ports for servers of tests, which a server may also be started on again.

Keeps true: no two calls give the same port while their processes live, and nobody gets it by chance meanwhile: it is
below those that the kernel gives away, to outgoing connections too.
"""

from __future__ import annotations

import random
import socket
from itertools import islice
from pathlib import Path

GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_000
_held: list[socket.socket] = []  # a name for each port given, for as long as this process lives


def free_port() -> int:
    """Of 127.0.0.1."""
    given_away = int(GIVEN_AWAY.read_text().split()[0]) if GIVEN_AWAY.exists() else 32_768
    chosen = random.SystemRandom()
    for port in islice(iter(lambda: chosen.randrange(LOWEST, given_away), None), 1_000):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0port of a test {port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:  # another test's, or another program listens there
            name.close()
            continue
        _held.append(name)
        return port
    raise AssertionError(f"no port is free from {LOWEST} to {given_away}")
