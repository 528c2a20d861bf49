"""The channels between workers: order, loss, and a peer that receives nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from noria.dataflow.messages.packets import Envelope, PeerPacket
from noria.dataflow.messages.peer_messages import TableLoaded, WorkerRestarted
from noria.runtime.transport import mesh as module
from noria.runtime.transport import wire
from noria.runtime.transport.mesh import Mesh, peer_endpoint
from noria.runtime.transport.wire import FrameKind

Start = Callable[[int, int], Mesh]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    endpoints = [peer_endpoint(tmp_path / "run", w) for w in range(3)]
    made: list[Mesh] = []

    def one(worker: int, incarnation: int) -> Mesh:
        made.append(Mesh(endpoints, worker, 7, incarnation))
        return made[-1]

    yield one
    for m in made:
        m.close()


def message(sender: int, number: int, nbytes: int = 0) -> Envelope:
    return Envelope(7, sender, number, PeerPacket(TableLoaded("x" * nbytes), 0))


def received(m: Mesh, others: list[Mesh]) -> list[tuple[int, object]]:
    """All arriving messages, as (sender, number), or (sender, "lost")."""
    arrived: list[tuple[int, object]] = []
    quiet = 0
    while quiet < 3:
        for other in others:
            assert not other.receive()
        got = m.receive(20)
        quiet = 0 if got else quiet + 1
        arrived += [(e.sender, "lost" if isinstance(e.body.message, WorkerRestarted) else e.seq)
                  for e in got]
    return arrived


def settled(*meshes: Mesh) -> list[list[tuple[int, object]]]:
    """The messages of each when all are connected."""
    arrived: list[list[tuple[int, object]]] = [[] for _ in meshes]
    quiet = 0
    while quiet < 3:
        quiet += 1
        for m, mine in zip(meshes, arrived, strict=True):
            got = m.receive(5)
            quiet = 0 if got or any(out.waits for out in m._out.values()) else quiet
            mine += [(e.sender, "lost" if isinstance(e.body.message, WorkerRestarted) else e.seq)
                     for e in got]
    return arrived


def test_each_worker_is_notified_of_each_other_once(start: Start) -> None:
    a, b, c = start(0, 1), start(1, 1), start(2, 1)
    arrived = settled(a, b, c)
    assert [sorted(f) for f in arrived] == [[(1, "lost"), (2, "lost")], [(0, "lost"), (2, "lost")],
                                          [(0, "lost"), (1, "lost")]]
    a.send([(1, message(0, n)) for n in range(1, 4)])
    c.send([(1, message(2, 9))])
    assert sorted(received(b, [a, c]), key=str) == [(0, 1), (0, 2), (0, 3), (2, 9)]


def test_a_restarted_peer_is_reported_lost_and_receives_no_older_messages(start: Start) -> None:
    a, b = start(0, 1), start(1, 1)
    settled(a, b)
    b.close()
    a.send([(1, message(0, 1))])
    again = start(1, 2)
    again.send([(0, message(1, 5))])
    at_a, at_b = settled(a, again)
    assert at_a == [(1, "lost"), (1, 5)]
    assert at_b == [(0, "lost")]
    a.send([(1, message(0, 2))])
    assert received(again, [a]) == [(0, 2)]


def test_a_broken_channel_is_a_loss_at_both_ends(start: Start) -> None:
    a, b = start(0, 1), start(1, 1)
    settled(a, b)
    a._out[1].line.shutdown(socket.SHUT_RDWR)
    a.send([(1, message(0, 1))])
    at_a, at_b = settled(a, b)
    assert at_a == [(1, "lost")]
    assert at_b == [(0, "lost")]
    a.send([(1, message(0, 2))])
    assert received(b, [a]) == [(0, 2)]


def test_a_message_that_cannot_be_read_is_a_loss(start: Start) -> None:
    """It held rows; without them views would be wrong."""
    a, b = start(0, 1), start(1, 1)
    settled(a, b)
    channel = a._out[1].line
    channel.setblocking(True)
    channel.sendall(wire.encode(message(0, 1))[:-1] + b"\xc1")
    at_a, at_b = settled(a, b)
    assert at_a == [(1, "lost")] and at_b == [(0, "lost")]
    a.send([(1, message(0, 2))])
    assert received(b, [a]) == [(0, 2)]


def test_a_peer_that_receives_nothing_does_not_block_others(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = start(0, 1), start(1, 1)
    settled(a, b)
    for n in range(1, 9):
        a.send([(1, message(0, n, 2**20))])
    b.send([(0, message(1, 3))])
    assert a.receive(20)[0].seq == 3
    at_a, at_b = settled(a, b)
    assert at_a == [] and at_b == [(0, n) for n in range(1, 9)]
    monkeypatch.setattr(module, "MOST_WAITING", 2**20)
    for n in range(1, 9):
        a.send([(1, message(0, n, 2**20))])
    at_a, at_b = settled(a, b)
    assert (1, "lost") in at_a and (0, "lost") in at_b


def test_invalid_bytes_end_only_their_own_channel(start: Start, tmp_path: Path) -> None:
    a, b = start(0, 1), start(1, 1)
    settled(a, b)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect(wire.socket_path(peer_endpoint(tmp_path / "run", 0)))
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        assert settled(a, b) == [[], []]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as older:
            older.connect(wire.socket_path(peer_endpoint(tmp_path / "run", 0)))
            older.sendall(wire.signal(FrameKind.JOIN, 6, 1, 9))
            assert settled(a, b) == [[], []]
    b.send([(0, message(1, 4))])
    assert received(a, [b]) == [(1, 4)]
