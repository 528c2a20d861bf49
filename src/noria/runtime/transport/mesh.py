"""The channels between the workers of one machine: a Unix stream from each to each, one for either direction.
Call `Mesh.send` and `Mesh.receive`.

A worker that starts listens, and connects to all others that run. Each of these receives its first message, which
says that it has restarted (rule R19), and connects back. So the messages of a channel are in order. A broken
channel is never continued: messages in transit are lost, and both ends are notified of the loss.

Keeps true: nothing blocks. Data that cannot be sent at once waits here. If a peer accepts nothing, this worker
continues to receive; when more than `MOST_WAITING` waits, the peer counts as lost. Nothing is sent to a worker
that does not run. Only processes of this user are accepted.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from noria.dataflow.messages.packets import Envelope, PeerPacket
from noria.dataflow.messages.peer_messages import WorkerRestarted
from noria.runtime.transport import wire
from noria.runtime.transport.wire import FrameDecoder, FrameKind, Signal, WireError

MOST_WAITING = 2**30  # bytes for one peer
READ_BYTES = 2**20
READ, WRITE, CLOSED = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP | select.EPOLLERR


def peer_endpoint(run_dir: Path, worker: int) -> str:
    """The endpoint at which a worker listens for the others."""
    return wire.private_endpoint(run_dir, f"peer-{worker}")


class _Outgoing:
    """The channel to one peer."""

    def __init__(self, line: socket.socket):
        self.line, self._waiting = line, bytearray()

    def send(self, data: bytes) -> bool:
        """Send data; False if the peer has ended or has stopped receiving."""
        self._waiting += data
        return self.flush() and len(self._waiting) <= MOST_WAITING

    def flush(self) -> bool:
        try:
            while self._waiting:
                sent = self.line.send(memoryview(self._waiting)[:READ_BYTES])
                del self._waiting[:sent]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    @property
    def waits(self) -> bool:
        return bool(self._waiting)


class _Incoming:
    """The channel from one peer, once it has identified itself."""

    def __init__(self, line: socket.socket):
        self.line, self.reader, self.sender = line, FrameDecoder(), -1


class Mesh:
    """All channels of one worker. `endpoints`: where each worker listens, by number. `incarnation`: how often
    this worker was started."""

    def __init__(self, endpoints: list[str], worker: int, epoch: int, incarnation: int,
                 note: Callable[[str], None] = lambda text: None):
        self._endpoints, self._worker, self._epoch, self._incarnation = endpoints, worker, epoch, incarnation
        self._note = note
        self._out: dict[int, _Outgoing] = {}
        self._in: dict[int, _Incoming] = {}  # by file descriptor
        self._newest: dict[int, int] = {}  # of each peer, the incarnation that is heard
        self._lost: list[int] = []  # peers to which the channel broke while they may live
        self._poll = select.epoll()
        path = wire.socket_path(endpoints[worker])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(len(endpoints))
        self._listener.setblocking(False)
        self._poll.register(self._listener, READ)
        for w in range(len(endpoints)):
            if w != worker:
                self._connect(w)

    def fileno(self) -> int:
        """A descriptor to poll: readable when `receive` has something to do."""
        return self._poll.fileno()

    def close(self) -> None:
        for out in self._out.values():
            out.line.close()
        for line in self._in.values():
            line.line.close()
        self._listener.close()
        self._poll.close()

    # -------------------------------------------------------------- sending
    def send(self, messages: Iterable[tuple[int, Envelope]]) -> None:
        """Send messages to their receivers without blocking; messages to workers that do not run are dropped."""
        batches: dict[int, list[bytes]] = {}
        for to, envelope in messages:
            if to in self._out:
                batches.setdefault(to, []).append(wire.encode(envelope))
        for to, parts in batches.items():
            if not self._out[to].send(b"".join(parts)):
                self._broke(to)
            else:
                self._watch(to)

    def _watch(self, to: int) -> None:
        """Poll a channel for its end, and for room if data waits."""
        self._poll.modify(self._out[to].line, WRITE if self._out[to].waits else 0)

    def _connect(self, to: int) -> bool:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.connect(wire.socket_path(self._endpoints[to]))
            line.setblocking(False)
        except OSError:
            line.close()
            return False
        self._out[to] = _Outgoing(line)
        self._poll.register(line, 0)
        if not self._out[to].send(wire.signal(FrameKind.JOIN, self._epoch, self._worker, self._incarnation)):
            self._drop_out(to)
            return False
        self._watch(to)
        return True

    def _broke(self, to: int) -> None:
        """Handle a broken channel, whose messages in transit are lost. If the peer runs, a new channel reports
        the loss to it; otherwise the peer connects when it starts."""
        self._note(f"worker {self._worker}: the channel to worker {to} broke")
        self._drop_out(to)
        if self._connect(to):
            self._lost.append(to)

    def _drop_out(self, to: int) -> None:
        out = self._out.pop(to)
        self._poll.unregister(out.line)
        out.line.close()

    # -------------------------------------------------------------- receiving
    def receive(self, wait_ms: int = 0) -> list[Envelope]:
        """The messages that have arrived, in order for each peer."""
        messages: list[Envelope] = []
        for fd, events in self._poll.poll(wait_ms / 1000):
            if fd == self._listener.fileno():
                self._accept()
            elif fd in self._in:
                messages += self._read(self._in[fd])
            else:
                self._ready(fd, events)
        lost, self._lost = self._lost, []
        return [self._loss(w) for w in lost] + messages

    def _ready(self, fd: int, events: int) -> None:
        to = next((w for w, out in self._out.items() if out.line.fileno() == fd), None)
        if to is None:
            return
        if events & CLOSED or not self._out[to].flush():
            self._broke(to)
        else:
            self._watch(to)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                line, _ = self._listener.accept()
                if not wire.same_user(line):
                    line.close()
                    continue
                line.setblocking(False)
                self._in[line.fileno()] = _Incoming(line)
                self._poll.register(line, READ)

    def _read(self, line: _Incoming) -> list[Envelope]:
        messages: list[Envelope] = []
        try:
            while data := line.line.recv(READ_BYTES):
                for item in line.reader.feed(data):
                    messages += self._messages_of(line, item)
                if line.line.fileno() < 0 or len(data) < READ_BYTES:
                    return messages
        except BlockingIOError:
            return messages
        except (OSError, WireError) as e:
            self._note(f"worker {self._worker}: the channel from worker {line.sender} broke: {e}")
        self._drop_in(line)
        return messages

    def _messages_of(self, line: _Incoming, item: wire.Item) -> list[Envelope]:
        if isinstance(item, WireError):
            raise item  # rows would be missing, so the channel restarts
        if item.epoch != self._epoch:
            self._note(f"worker {self._worker} refused a message of worker {line.sender}: {item}")
            return []
        if isinstance(item, Envelope):
            return [item] if item.sender == line.sender else []
        return self._joined(line, item) if item.kind is FrameKind.JOIN else []

    def _joined(self, line: _Incoming, hello: Signal) -> list[Envelope]:
        """Begin a channel. Messages that the peer sent on earlier channels are complete now."""
        if hello.number < self._newest.get(hello.sender, 0):
            self._drop_in(line)
            return []
        anew = 0 < self._newest.get(hello.sender, 0) < hello.number  # messages to its former life are lost
        self._newest[hello.sender] = hello.number
        for old in [other for other in self._in.values() if other.sender == hello.sender]:
            self._drop_in(old)
        line.sender = hello.sender
        if anew and hello.sender in self._out:
            self._drop_out(hello.sender)
        if hello.sender not in self._out:
            self._connect(hello.sender)
        return [self._loss(hello.sender)]

    def _drop_in(self, line: _Incoming) -> None:
        if self._in.pop(line.line.fileno(), None) is not None:
            self._poll.unregister(line.line)
            line.line.close()

    def _loss(self, worker: int) -> Envelope:
        return Envelope(self._epoch, worker, 0, PeerPacket(WorkerRestarted(self._newest.get(worker, 0)), 0))
