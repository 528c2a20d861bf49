"""An answered commit is preceded by done ones: random commits with the order in which they are seen."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from noria.runtime.link.commit_order import CommitOrder, Scope


def meet(a: Scope, b: Scope) -> bool:
    return bool(set(a.workers) & set(b.workers) and set(a.tables) & set(b.tables))


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_answered_has_seen_only_what_is_done(seed: int) -> None:
    asyncio.run(asyncio.wait_for(_random_commits(random.Random(seed)), 60))


async def _random_commits(chance: random.Random) -> None:
    order, loop = CommitOrder(), asyncio.get_running_loop()
    partial: dict[int, asyncio.Future[Any]] = {}
    seen_by: dict[int, set[int]] = {}  # by commit: those of which it may have seen rows, itself or through others
    scopes: dict[int, Scope] = {}
    answered: list[int] = []
    for n in range(200):
        scope = Scope(chance.sample(range(4), chance.randint(1, 2)), chance.sample("abc", chance.randint(1, 2)))
        open_before = [m for m in scopes if m not in answered or (m in partial and not partial[m].done())]
        seen_by[n] = {s for m in open_before if meet(scope, scopes[m]) for s in (m, *seen_by[m])}
        scopes[n] = scope
        if chance.random() < 0.5:
            partial[n] = done = loop.create_future()
            order.begins(done, scope)
            done.add_done_callback(lambda _, n=n, scope=scope: order.answer(scope, lambda: answered.append(n)))
        else:
            order.answer(scope, lambda n=n: answered.append(n))
        if chance.random() < 0.6 and (waiting := [f for f in partial.values() if not f.done()]):
            chance.choice(waiting).set_result(None)
        await asyncio.sleep(0)
        for m in answered:
            assert all(partial[s].done() for s in seen_by[m] if s in partial), (m, seen_by[m])
    for future in partial.values():
        if not future.done():
            future.set_result(None)
    while len(order):
        await asyncio.sleep(0)
    assert sorted(answered) == list(range(200))


def test_a_commit_waits_for_none_of_other_workers_or_tables() -> None:
    async def test() -> None:
        order, answered = CommitOrder(), list[str]()
        half = asyncio.get_running_loop().create_future()
        order.begins(half, Scope({0, 1}, {"t"}))
        order.answer(Scope({2}, {"t"}), lambda: answered.append("other worker"))
        order.answer(Scope({0}, {"u"}), lambda: answered.append("other table"))
        order.answer(Scope({1}, {"t", "u"}), lambda: answered.append("both"))
        assert answered == ["other worker", "other table"]
        half.set_result(None)
        while len(order):
            await asyncio.sleep(0)
        await order.wait(Scope({0, 1}, {"t"}))
        assert answered[2:] == ["both"]

    asyncio.run(test())


def test_many_answers_that_wait_keep_little_each() -> None:
    """Each waits for the last one before it, not for all."""
    async def test() -> None:
        order, answered = CommitOrder(), list[int]()
        half = asyncio.get_running_loop().create_future()
        order.begins(half, Scope({0, 1}, {"t"}))
        for n in range(20_000):
            order.answer(Scope({n % 2}, {"t"}), lambda n=n: answered.append(n))
        assert len(order) == 20_001 and not answered
        half.set_result(None)
        while len(order):
            await asyncio.sleep(0)
        assert sorted(answered) == list(range(20_000))

    asyncio.run(asyncio.wait_for(test(), 60))
