"""Streams and the workers' channels in memory: in order, with any delay, and cut anywhere."""

from __future__ import annotations

import os
import random
import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any

from noria.dataflow.messages.packets import Envelope, PeerPacket
from noria.dataflow.messages.peer_messages import WorkerRestarted
from noria.runtime.transport import wire
from noria.runtime.transport.wire import FrameDecoder, FrameKind, Signal

NOBODY = 2**22 + 7  # no process has this number: it is not looked at, and never killed


class Peer:
    """What is asked of a socket."""

    def getsockopt(self, *what: int) -> bytes:
        return struct.pack("3i", NOBODY, os.getuid(), 0)

    def fileno(self) -> int:
        return -1


class End:
    """One end of a stream.  inbox: what was written at the other end and is not read here; None: its end."""

    peer: End

    def __init__(self) -> None:
        self.inbox: deque[bytes | None] = deque()
        self.over = False

    def write(self, data: bytes) -> None:
        if not self.over and not self.peer.over:
            self.peer.inbox.append(bytes(data))

    def cut(self) -> None:
        """Nothing more comes from here; what was written is on its way."""
        if not self.over:
            self.over = True
            self.peer.inbox.append(None)


def pair(a: End, b: End) -> None:
    a.peer, b.peer = b, a


class AsyncEnd(End):
    """Of a process with an event loop: asyncio's transport.  context: in which that hears what arrives."""

    def __init__(self, loop: Any, context: Context):
        super().__init__()
        self._loop, self._context, self._protocol = loop, context, None
        loop.ends.append(self)

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        self._context.run(protocol.connection_made, self)

    def get_extra_info(self, name: str) -> Peer:
        return Peer()

    def is_closing(self) -> bool:
        return self.over

    def close(self) -> None:
        if not self.over:
            self.cut()
            self._loop.call_soon(self._tell)

    abort = close

    def die(self) -> None:
        """With its process."""
        self.cut()
        self._protocol = None

    def _tell(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            self._context.run(protocol.connection_lost, None)

    def happens(self) -> None:
        """The next of what was written arrives, or some of it."""
        data = self.inbox.popleft()
        if data is None:
            self.over = True
            self._tell()
            return
        if len(data) > 1 and self._loop.rng.random() < 0.1:
            at = self._loop.rng.randrange(1, len(data))
            self.inbox.appendleft(data[at:])
            data = data[:at]
        if self._protocol is not None:
            self._context.run(self._protocol.data_received, data)


# ---------------------------------------------------------------- between workers
class _Channel:
    """From one worker to another.  over: it was cut, or its sender is gone."""

    def __init__(self, sender: int):
        self.sender, self.items, self.over, self.reader = sender, deque[bytes](), False, FrameDecoder()


class SimMesh:
    """`runtime.mesh.Mesh` with channels in memory.  all: the workers that are there."""

    def __init__(self, all: dict[int, SimMesh], worker: int, workers: int, epoch: int, incarnation: int,
                 rng: random.Random):
        self._all, self.worker, self._epoch, self._incarnation, self._rng = all, worker, epoch, incarnation, rng
        self._out: dict[int, _Channel] = {}
        self._in: list[_Channel] = []
        self._newest: dict[int, int] = {}
        self._arrived: list[Envelope] = []
        all[worker] = self
        for w in range(workers):
            if w != worker:
                self._connect(w)

    def waits(self) -> bool:
        return bool(self._arrived) or any(c.items or c.over for c in self._in)

    def take(self) -> None:
        """Some of what is on its way arrives."""
        for c in self._rng.sample(self._in, len(self._in)):
            for _ in range(self._rng.randint(0, len(c.items) + 1)):
                if c not in self._in:
                    break  # replaced
                if c.items:
                    for item in c.reader.feed(c.items.popleft()):
                        self._taken(c, item)
                elif c.over:
                    self._in.remove(c)

    def receive(self, wait_ms: int = 0) -> list[Envelope]:
        found, self._arrived = self._arrived, []
        return found

    @property
    def here(self) -> bool:
        """Has something arrived?"""
        return bool(self._arrived)

    def send(self, messages: Iterable[tuple[int, Envelope]]) -> None:
        for to, envelope in messages:
            if to in self._out and self._out[to].over:
                self.broke(to)
            elif to in self._out:
                self._out[to].items.append(wire.encode(envelope))

    def broken(self) -> list[Callable[[], None]]:
        """Cut channels that have not been noticed here."""
        return [lambda to=to: self.broke(to) for to, c in self._out.items() if c.over]

    def broke(self, to: int) -> None:
        self._out.pop(to)
        if self._connect(to):
            self._lost(to)

    def cut(self, to: int) -> None:
        """The last of what is on its way is lost."""
        if (c := self._out.get(to)) is not None:
            for _ in range(self._rng.randint(0, len(c.items))):
                c.items.pop()
            c.over = True

    def die(self) -> None:
        if self._all.get(self.worker) is self:
            del self._all[self.worker]
        for c in (*self._out.values(), *self._in):
            c.over = True

    def _connect(self, to: int) -> bool:
        other = self._all.get(to)
        if other is None:
            return False
        c = self._out[to] = _Channel(-1)
        c.items.append(wire.signal(FrameKind.JOIN, self._epoch, self.worker, self._incarnation))
        other._in.append(c)
        return True

    def _taken(self, c: _Channel, item: wire.Item) -> None:
        if isinstance(item, wire.WireError) or item.epoch != self._epoch:
            return
        if isinstance(item, Envelope):
            self._arrived += [item] if item.sender == c.sender else []
        else:
            self._joined(c, item)

    def _joined(self, c: _Channel, hello: Signal) -> None:
        if hello.number < self._newest.get(hello.sender, 0):
            self._drop(c)
            return
        anew = 0 < self._newest.get(hello.sender, 0) < hello.number
        self._newest[hello.sender] = hello.number
        for old in [o for o in self._in if o.sender == hello.sender]:
            self._drop(old)
        c.sender = hello.sender
        if anew and hello.sender in self._out:
            self._out.pop(hello.sender).over = True
        if hello.sender not in self._out:
            self._connect(hello.sender)
        self._lost(hello.sender)

    def _drop(self, c: _Channel) -> None:
        self._in.remove(c)
        c.over = True

    def _lost(self, worker: int) -> None:
        self._arrived.append(Envelope(self._epoch, worker, 0,
                                      PeerPacket(WorkerRestarted(self._newest.get(worker, 0)), 0)))
