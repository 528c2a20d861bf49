"""A worker's connection to its front end: the worker waits for a busy front end, and ends after a lost one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from noria.core.limits import DEAF_S, KERNEL_S, UNSENT_BYTES
from noria.dataflow.messages.packets import Done, Envelope
from noria.runtime.link.link import LinkState
from noria.runtime.transport import wire
from noria.runtime.transport.heartbeats import RequestUnderWay
from noria.runtime.worker.worker_main import FrontEndConnection, FrontEndLost
from runtime.processes import config, linked, run


class Busy:
    """Whether the front end computes, as the test decides."""

    going = True

    def goes_on(self) -> bool:
        return self.going

    def sign(self) -> None:
        pass


class Bench:
    """A front end that accepts a worker, and reads when the test says so."""

    def __init__(self, path: Path):
        self.now = 100.0
        what = config(path)
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(wire.socket_path(what.endpoint))
        self.server.listen()
        self.line = FrontEndConnection(what, 1, lambda: self.now)
        self.line.__enter__()
        self.line.front = Busy()
        self.socket = self.server.accept()[0]

    def close(self) -> None:
        self.socket.close()
        self.line.__exit__()
        self.server.close()

    def send(self, nbytes: int) -> None:
        self.line.send([Envelope(1, 0, 0, Done(7, b"x" * nbytes))])

    def received(self, number: int) -> list[wire.Item]:
        reader, items = wire.FrameDecoder(), list[wire.Item]()
        while len(items) < number + 1:  # the first says who it is
            items += reader.feed(self.socket.recv(2**20))
            self.line.arrived(0)
        return items[1:]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_replies_do_not_wait_for_a_front_end_that_does_not_read(bench: Bench) -> None:
    for _ in range(8):
        bench.send(2**20)
    assert 0 < bench.line._unsent_bytes < UNSENT_BYTES
    replies = bench.received(8)
    assert [len(r.body.value) for r in replies] == [2**20] * 8
    assert not bench.line._unsent and not bench.line._unsent_bytes


def test_a_worker_waits_for_a_busy_front_end(bench: Bench) -> None:
    bench.send(2**22)
    for _ in range(10):
        bench.now += 10.0
        bench.line.arrived(0)
    assert bench.received(1)


def test_a_front_end_without_a_sign_of_life_is_lost(bench: Bench) -> None:
    bench.send(2**22)
    bench.line.front.going = False
    bench.line.watch.last_signal_at = bench.now = bench.now + 3.0
    bench.line.arrived(0)  # its thread for signs of life was heard
    bench.now += 3.0
    with pytest.raises(FrontEndLost, match="no sign of life"):
        bench.line.arrived(0)


def test_a_front_end_that_accepts_nothing_for_very_long_is_lost(bench: Bench) -> None:
    bench.send(2**22)
    bench.line.watch.last_signal_at = bench.now = bench.now + KERNEL_S + 1
    with pytest.raises(FrontEndLost, match="takes no replies"):
        bench.line.arrived(0)


# ------------------------------------------------------------------ requests that were cancelled
def test_a_worker_is_deaf_only_if_it_has_begun_nothing_since(tmp_path: Path) -> None:
    """A worker that begins a cancelled request late, or works on slices of it, is not deaf."""
    doing = RequestUnderWay(tmp_path / "doing")

    async def test() -> None:
        async with linked(tmp_path, restart=False, doing=tmp_path / "doing") as (link, nursery):
            looks: list[tuple[object, ...]] = []
            link._loop = _Later(looks)
            incarnation, number = link._newest, 2**40 + 5
            link._look_whether_deaf(incarnation, number)
            assert not looks, "it is at something else"
            doing(number)
            link._look_whether_deaf(incarnation, number)
            doing(number)  # another slice
            link._look_whether_deaf(*looks.pop())
            assert link.state is LinkState.UP
            link._look_whether_deaf(*looks.pop())
            assert link.state is LinkState.DOWN and f"went on for {DEAF_S} s" in link.why
            del link._loop
            assert nursery.children[0].wait(20) < 0

    run(test)


class _Later:
    """A loop that notes what is to be called later."""

    def __init__(self, calls: list[tuple[object, ...]]):
        self._calls = calls

    def call_later(self, delay_s: float, function: object, *arguments: object) -> None:
        assert delay_s == DEAF_S
        self._calls.append(arguments)
