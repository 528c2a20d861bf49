"""The locks of GET_LOCK under random interleavings of sessions that get, release, are killed and end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from noria.core.errors import SqlError
from noria.runtime.transactions.deadlock_watch import Deadlocks
from noria.server.sessions.user_locks import UserLocks


class Rig:
    """Sessions 0, 1, …, and what each must hold."""

    def __init__(self, seed: int) -> None:
        self.rng, self.locks = random.Random(seed), UserLocks(Deadlocks())
        self.sessions, self.names = range(self.rng.randint(2, 5)), "abc"[: self.rng.randint(1, 3)]
        self.held: list[Counter[str]] = [Counter() for _ in self.sessions]
        self.waiting: dict[int, tuple[str, asyncio.Task[bool]]] = {}

    async def step(self) -> None:
        session, name = self.rng.choice(self.sessions), self.rng.choice(self.names)
        if session in self.waiting:
            if self.rng.random() < 0.2:
                self.waiting[session][1].cancel()  # killed, perhaps just as the lock is granted
        elif self.rng.random() < 0.5:
            self.waiting[session] = name, asyncio.ensure_future(self.locks.get(session, name, None))
        elif self.rng.random() < 0.8:
            known = any(held[name] for held in self.held)
            released = self.locks.release(session, name)
            assert released is (True if self.held[session][name] else False if known else None)
            self.held[session] -= Counter({name: 1}) if released else Counter()
        else:
            assert self.locks.release_all(session) == self.held[session].total()
            self.held[session].clear()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)
        for session, (name, task) in list(self.waiting.items()):
            if not task.done():
                continue
            del self.waiting[session]
            if not task.cancelled() and task.exception() is None:
                assert task.result() is True
                self.held[session][name] += 1
            elif not task.cancelled():
                error = task.exception()
                assert isinstance(error, SqlError) and error.code == 3058
                assert self.held[session], "a deadlock of one who holds nothing"

    def check(self) -> None:
        for name in self.names:
            holders = [s for s in self.sessions if self.held[s][name]]
            assert len(holders) <= 1 and self.locks.holder(name) == (holders[0] if holders else None)
        for session in self.sessions:
            assert self.locks.held(session) == len(+self.held[session])
        for session, (name, _) in self.waiting.items():
            assert self.locks.holder(name) not in (None, session), "a lost wake-up"


@pytest.mark.parametrize("seed", range(100))
def test_random_interleavings(seed: int) -> None:
    async def run() -> None:
        rig = Rig(seed)
        for _ in range(200):
            await rig.step()
            rig.check()
        for session in rig.sessions:
            rig.locks.release_all(session)
        for _, task in rig.waiting.values():
            task.cancel()
        await asyncio.gather(*(t for _, t in rig.waiting.values()), return_exceptions=True)
        for session in rig.sessions:
            rig.locks.release_all(session)
        assert not rig.locks._table and not rig.locks._waiting

    asyncio.run(run())
