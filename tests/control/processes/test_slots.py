"""Slots before Spark: how many run, who goes next, and that nobody who gives up keeps one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from noria.control.processes.slots import Slots


class Full(Exception):
    pass


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_who_waits_goes_in_order_and_one_too_many_is_told_at_once() -> None:
    async def test() -> None:
        slots, done = Slots(1, 2, Full), list[str]()

        async def work(name: str) -> Callable[[], None]:
            give = await slots.take()
            done.append(name)
            return give

        first = await work("a")
        waiting = [asyncio.create_task(work(n)) for n in "bc"]
        await turn()
        with pytest.raises(Full):
            await slots.take()
        assert done == ["a"] and slots.waiting == 2
        first()
        first()  # gives once
        await turn()
        assert done == ["a", "b"]
        (await waiting[0])()
        (await waiting[1])()
        assert done == ["a", "b", "c"] and slots.free == 1

    asyncio.run(test())


def test_what_is_tried_again_waits_for_all_slots_and_goes_before_the_others() -> None:
    async def test() -> None:
        slots = Slots(2, 10, Full)
        one, two = await slots.take(), await slots.take()
        later = asyncio.create_task(slots.take())
        await turn()
        alone = asyncio.create_task(slots.take_all())
        await turn()
        one()
        await turn()
        assert not alone.done() and not later.done()
        two()
        await turn()
        assert alone.done() and not later.done() and slots.free == 0
        (await alone)()
        await turn()
        assert later.done()

    asyncio.run(test())


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_arrivals_ends_and_cancellations_loses_a_slot(seed: int) -> None:
    async def test() -> None:
        chance = random.Random(seed)
        slots, running, most = Slots(3, 1_000, Full), 0, 0

        async def work(alone: bool) -> None:
            nonlocal running, most
            give = await (slots.take_all() if alone else slots.take())
            running += 3 if alone else 1
            most = max(most, running)
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                running -= 3 if alone else 1
                give()

        tasks = []
        for _ in range(200):
            tasks.append(asyncio.create_task(work(chance.random() < 0.1)))
            if chance.random() < 0.4:
                chance.choice(tasks).cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (slots.free, slots.waiting, running) == (3, 0, 0) and most <= 3

    asyncio.run(test())
