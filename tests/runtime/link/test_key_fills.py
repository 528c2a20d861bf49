"""`KeyFills`: keys share packets, one request for a key is under way, and late or lost answers end the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Done, FillKeys
from noria.runtime.link import key_fills
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.key_fills import KeyFill, KeyFills


class Worker:
    """Records packets. A test answers them by number."""

    def __init__(self) -> None:
        self.asked: list[FillKeys] = []
        self._replies: list[asyncio.Future[Done]] = []

    async def ask(self, body: FillKeys, retry: bool = False) -> Done:
        self.asked.append(body)
        self._replies.append(asyncio.get_running_loop().create_future())
        return await self._replies[-1]

    def answer(self, number: int, reply: bool | Exception = True) -> None:
        if isinstance(reply, Exception):
            self._replies[number].set_exception(reply)
        else:
            self._replies[number].set_result(Done(0, reply))

    def keys(self) -> list[list[int]]:
        return [[key for (key,) in body.keys] for body in self.asked]


async def turns() -> None:
    """Let everything run that is due."""
    for _ in range(10):
        await asyncio.sleep(0)


def add(fills: KeyFills, key: int, worker: int = 0, view: str = "v") -> KeyFill:
    return fills.find(worker, view, 1, (key,)) or fills.add(worker, view, 1, 500, (key,))


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_keys_of_one_turn_share_a_packet_and_equal_keys_a_place() -> None:
    async def test() -> None:
        worker = Worker()
        fills = KeyFills(lambda: [worker])
        found = [add(fills, key) for key in (1, 2, 1, 3)]
        await turns()
        assert worker.keys() == [[1, 2, 3]] and worker.asked[0] == FillKeys(0, "v", 1, 500, ((1,), (2,), (3,)))
        assert add(fills, 2) is found[1]
        worker.answer(0)
        assert [await f.soon for f in found] == [True] * 4 and all(f.answered.result() for f in found)
        assert fills.find(0, "v", 1, (1,)) is None

    run(test())


def test_keys_that_are_missed_meanwhile_leave_together() -> None:
    async def test() -> None:
        worker = Worker()
        fills = KeyFills(lambda: [worker])
        for key in range(key_fills.FILL_PACKETS):
            add(fills, key)
            await turns()
        later = [add(fills, key) for key in (100, 101, 102)]
        await turns()
        assert len(worker.asked) == key_fills.FILL_PACKETS
        worker.answer(0)
        await turns()
        assert worker.keys()[-1] == [100, 101, 102]
        for number in range(1, key_fills.FILL_PACKETS + 1):
            worker.answer(number)
        assert [await f.soon for f in later] == [True] * 3

    run(test())


def test_a_packet_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_fills, "FILL_TOGETHER", 2)

    async def test() -> None:
        worker = Worker()
        fills = KeyFills(lambda: [worker])
        found = [add(fills, key) for key in range(7)]
        for number in range(4):
            await turns()
            worker.answer(number)
        assert [await f.soon for f in found] == [True] * 7
        assert worker.keys() == [[0, 1], [2, 3], [4, 5], [6]]

    run(test())


def test_views_and_workers_have_packets_of_their_own() -> None:
    async def test() -> None:
        workers = [Worker(), Worker()]
        fills = KeyFills(lambda: workers)
        add(fills, 1), add(fills, 1, 1), add(fills, 1, 0, "w")
        await turns()
        assert [(body.view, body.keys) for body in workers[0].asked] == [("v", ((1,),)), ("w", ((1,),))]
        assert workers[1].keys() == [[1]]

    run(test())


def test_who_waits_is_late_while_the_worker_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request goes on: a second one for the key would do its work again."""
    monkeypatch.setattr(key_fills, "SOON_S", 0.0)

    async def test() -> None:
        worker = Worker()
        fills = KeyFills(lambda: [worker])
        fill = add(fills, 1)
        assert await fill.soon is False and not fill.answered.done() and add(fills, 1) is fill
        worker.answer(0)
        assert await fill.answered is True

    run(test())


@pytest.mark.parametrize("reply", [False, WorkerUnavailable("it died"), SqlError(1105, "HY000", "no"),
                                   RuntimeError("a defect")])
def test_what_is_not_filled_is_told_and_forgotten(reply: Any) -> None:
    async def test() -> None:
        worker = Worker()
        fills = KeyFills(lambda: [worker])
        found = [add(fills, key) for key in (1, 2)]
        await turns()
        worker.answer(0, reply)
        assert [await f.soon for f in found] == [False, False]
        again = add(fills, 1)
        await turns()
        worker.answer(1)
        assert await again.soon is True

    run(test())
