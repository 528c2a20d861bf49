"""A lease and a ZooKeeper that cannot be reached for a while, or has given it to another: it is lost in time, and not
before."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient

from chaos.proxy import Proxy
from e2e.zookeeper import zookeeper
from noria.control.processes.lease_address import LeaseAddress, LeaseUnavailable
from noria.control.processes.zookeeper import Lease

SESSION_S = 4.0  # its node is ended at the next of ZooKeeper's ticks, of half a second


class Keeper(NamedTuple):
    address: str
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper") / "data") as (address, process):
        yield Keeper(address, process)


@contextlib.asynccontextmanager
async def held(address: str, path: str) -> AsyncIterator[Lease]:
    lease = Lease(LeaseAddress(address, path), "us", print, SESSION_S)
    await lease.take()
    try:
        yield lease
    finally:
        await lease.release()


@contextlib.contextmanager
def others(address: str) -> Iterator[KazooClient]:
    client = KazooClient(address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


async def lost_within(lease: Lease, seconds: float) -> str | None:
    await asyncio.wait({lease.lost}, timeout=seconds)
    return lease.lost.result() if lease.lost.done() else None


async def came_true(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not what():
            await asyncio.to_thread(time.sleep, 0.02)


class Way(Proxy):
    """To ZooKeeper; closed, connections end and new ones are as well."""

    def __init__(self, address: str):
        self.open = True
        super().__init__(lambda: self._target(int(address.rpartition(":")[2])))

    def _target(self, port: int) -> int:
        if not self.open:
            raise ConnectionRefusedError
        return port

    def shut(self) -> None:
        self.open = False
        for line in self._lines:
            line.close()


def test_connections_that_are_refused_cost_the_lease_as_late_as_silence_does(keeper: Keeper) -> None:
    async def scenario() -> None:
        way = Way(keeper.address)
        async with held(f"127.0.0.1:{way.port}", "/refused") as lease:
            way.shut()
            assert await lost_within(lease, SESSION_S / 2) is None
            way.open = True
            assert await lost_within(lease, SESSION_S * 1.5) is None and lease.held, "it is renewed"
            way.shut()
            assert await lost_within(lease, SESSION_S) == "ZooKeeper does not answer"
            with others(keeper.address) as client:
                assert client.get_children("/refused/leader"), "before another one can have it"
        way.close()

    asyncio.run(scenario())


def test_silence_costs_the_lease_within_a_session(keeper: Keeper) -> None:
    async def scenario() -> None:
        async with held(keeper.address, "/silent") as lease:
            keeper.process.send_signal(signal.SIGSTOP)
            try:
                assert await lost_within(lease, SESSION_S / 2) is None
                assert await lost_within(lease, SESSION_S / 2) == "ZooKeeper does not answer"
            finally:
                keeper.process.send_signal(signal.SIGCONT)

    asyncio.run(scenario())


def test_a_lease_whose_node_was_removed_is_lost(keeper: Keeper) -> None:
    async def scenario() -> None:
        async with held(keeper.address, "/removed") as lease:
            with others(keeper.address) as client:
                client.delete("/removed/leader/" + client.get_children("/removed/leader")[0])
                assert await lost_within(lease, SESSION_S / 2) == "ZooKeeper has its node no more"

    asyncio.run(scenario())


def test_who_waits_has_it_after_the_one_before(keeper: Keeper) -> None:
    async def scenario() -> None:
        async with held(keeper.address, "/turns") as first:
            second = Lease(LeaseAddress(keeper.address, "/turns"), "the second", print, SESSION_S)
            turn = asyncio.ensure_future(second.take())
            with others(keeper.address) as client:
                await came_true(lambda: len(client.get_children("/turns/leader")) == 2)
            assert not turn.done() and not second.held
            await first.release()
            await asyncio.wait_for(turn, 30)
            assert second.held and not first.held
            await second.release()

    asyncio.run(scenario())


def test_a_lease_that_goes_as_it_comes_is_none(keeper: Keeper) -> None:
    class Unlucky(Lease):
        def _at_once(self) -> bool:
            taken = super()._at_once()
            assert taken and self._lock is not None
            self._client.delete(f"{self._lock.path}/{self._lock.node}")
            return taken

    async def scenario() -> None:
        lease = Unlucky(LeaseAddress(keeper.address, "/unlucky"), "us", print, SESSION_S)
        with pytest.raises(LeaseUnavailable, match="lost as it came"):
            await lease.take()
        await lease.release()

    asyncio.run(scenario())
