"""The memory limit of large results, and results that are collected in chunks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pytest

from noria.core.errors import result_gone
from noria.dataflow.messages.packets import NextRows, Rows
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.collecting import collected
from noria.runtime.link.result_memory import ResultMemory


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def turns(n: int = 5) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


def test_results_that_do_not_fit_wait_in_order() -> None:
    async def test() -> None:
        room, leases, order = ResultMemory(1_000), dict.fromkeys(range(4)), list[int]()

        async def ask(n: int) -> None:
            lease = room.lease()
            await lease.cover(300)
            leases[n] = lease
            order.append(n)

        tasks = [asyncio.ensure_future(ask(n)) for n in range(4)]
        await turns()
        assert order == [0, 1] and room.reserved == 600, "a quarter is left to small ones"
        leases[1] = None
        gc.collect()
        await turns()
        assert order == [0, 1, 2]
        leases.clear()
        gc.collect()
        await asyncio.gather(*tasks)
        del tasks
        assert order == [0, 1, 2, 3]

    run(test())


def test_small_results_do_not_wait_behind_large_ones() -> None:
    async def test() -> None:
        room = ResultMemory(1_000)
        first, second, small = room.lease(), room.lease(), room.lease()
        await first.cover(700)
        waiting = asyncio.ensure_future(second.cover(700))
        await turns()
        await small.cover(50)
        assert not waiting.done() and room.reserved == 750
        waiting.cancel()
        await turns()
        del first, small
        gc.collect()
        assert room.reserved == 0

    run(test())


def test_a_result_larger_than_the_limit_has_the_memory_alone() -> None:
    async def test() -> None:
        room = ResultMemory(1_000)
        lease = room.lease()
        await lease.cover(5_000)
        assert room.reserved == 5_000 == lease.nbytes

    run(test())


def test_parts_of_one_result_do_not_wait_for_each_other() -> None:
    """Two results of three parts each: once the first part has memory, the other parts do not wait."""
    async def test() -> None:
        room, ended = ResultMemory(1_000), list[int]()

        async def ask(n: int) -> None:
            lease = room.lease()
            await asyncio.gather(*(lease.cover(500) for _ in range(3)))
            await turns()
            ended.append(n)

        await asyncio.gather(ask(0), ask(1))
        assert ended == [0, 1]

    run(test())


def test_a_result_cancelled_at_its_turn_reserves_nothing() -> None:
    async def test() -> None:
        room = ResultMemory(1_000)
        first, second = room.lease(), room.lease()
        await first.cover(700)
        waiting = asyncio.ensure_future(second.cover(700))
        await turns()
        del first
        gc.collect()  # its turn has come
        waiting.cancel()
        await turns()
        assert room.reserved == 0

    run(test())


# ------------------------------------------------------------------ chunks
def chunk(request: int, rows: range, left: int) -> Rows:
    return Rows(request, pa.table({"c0": list(rows), "__key": [0] * len(rows)}), left=left)


def test_chunks_are_requested_one_by_one_and_joined() -> None:
    async def test() -> None:
        room, requested = ResultMemory(10_000), list[NextRows]()

        async def more(body: NextRows) -> Rows:
            requested.append(body)
            return chunk(9, range(10 * len(requested), 10 * len(requested) + 10), 30 - 10 * len(requested))

        lease = room.lease()
        result = await collected(chunk(7, range(10), 30), more, requested.append, lease)
        assert result.rows.column(0).to_pylist() == list(range(40)) and result.request == 7
        assert requested == [NextRows(0, 7)] * 3 and lease.nbytes == result.rows.nbytes

    run(test())


def test_a_cancelled_read_makes_the_worker_drop_the_rest() -> None:
    async def test() -> None:
        room, dropped = ResultMemory(100), list[NextRows]()
        full = room.lease()
        await full.cover(100)

        async def more(body: NextRows) -> Rows:
            raise AssertionError("there was no room")

        waiting = asyncio.ensure_future(collected(chunk(7, range(10), 30), more, dropped.append, room.lease()))
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert dropped == [NextRows(0, 7, stop=True)]

    run(test())


def test_the_rest_of_a_result_is_lost_with_its_worker() -> None:
    async def test() -> None:
        async def more(body: NextRows) -> Rows:
            return Rows(8, None, result_gone())

        with pytest.raises(WorkerUnavailable, match="run the statement again"):
            await collected(chunk(7, range(10), 30), more, lambda m: None, None)

    run(test())
