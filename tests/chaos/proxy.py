"""A wire that can be cut: clients connect here, and any byte may be the last one that goes through.

Keeps true: bytes go on unchanged and in order until a cut; after it neither side hears of the other again.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable

PIECE_BYTES = 65_536
LINGER_NOT = struct.pack("ii", 1, 0)  # close with a reset, not with an end


class Line:
    """One client's two sockets.  `budget`: bytes that still pass in each direction, None for all."""

    def __init__(self, client: socket.socket, server: socket.socket):
        self.ends = (client, server)
        self.budget: list[int | None] = [None, None]
        self.reset = False

    def start(self) -> None:
        for way in (0, 1):
            threading.Thread(target=self._carry, args=(way,), daemon=True).start()

    def _carry(self, way: int) -> None:
        source, target = self.ends[way], self.ends[1 - way]
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                budget = self.budget[way]
                if budget is not None and len(data) > budget:
                    target.sendall(data[:budget])
                    break
                target.sendall(data)
                if budget is not None:
                    self.budget[way] = budget - len(data)
        self.close()

    def close(self) -> None:
        for end in self.ends:
            with contextlib.suppress(OSError):
                if self.reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens for clients of the port that `where` names at the time."""

    def __init__(self, where: Callable[[], int]):
        self._where, self._lines, self._lock = where, list[Line](), threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                try:
                    server = socket.create_connection(("127.0.0.1", self._where()), timeout=10)
                except OSError:
                    client.close()
                    continue
                for end in (client, server):
                    end.settimeout(None)
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                line = Line(client, server)
                with self._lock:
                    self._lines = [x for x in self._lines if x.ends[0].fileno() >= 0] + [line]
                line.start()

    def cut(self, chance: random.Random) -> int:
        """Each open line is cut within its next bytes, in the middle of whatever they are; how many there are."""
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            line.reset = chance.random() < 0.5
            line.budget[chance.randrange(2)] = chance.choice((0, 1, 3, 4, 5, chance.randrange(200)))
        return len(lines)

    def close(self) -> None:
        self._listener.close()
        for line in self._lines:
            line.close()
