"""LOCK TABLES under random interleavings of sessions that lock, read, write, end, are killed and go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from noria.server.answering.locks import TableLocks, Tables, Use


class Rig:
    """Sessions 0, 1, …, the tables that each has locked, and those that its open transaction has read or written.

    A slow reference says who must wait.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.locks = random.Random(seed), TableLocks()
        self.sessions, self.names = range(self.rng.randint(2, 5)), "abc"[: self.rng.randint(1, 3)]
        self.held: dict[int, dict[str, bool]] = {s: {} for s in self.sessions}
        self.read: dict[int, set[str]] = {s: set() for s in self.sessions}
        self.written: dict[int, set[str]] = {s: set() for s in self.sessions}
        self.waiting: dict[int, tuple[str, dict[str, bool], asyncio.Task[None]]] = {}

    # ------------------------------------------------------------ what sessions do
    async def step(self) -> None:
        s = self.rng.choice(self.sessions)
        tables = {n: self.rng.random() < 0.5 for n in self.rng.sample(self.names, self.rng.randint(1, len(self.names)))}
        if s in self.waiting:
            if self.rng.random() < 0.1:
                self.waiting[s][2].cancel()
        elif self.rng.random() < 0.3:
            self.end(s)
            self.held[s] = {}
            self.begin(s, "lock", tables, self.lock(s, tables))
        elif self.rng.random() < 0.3:
            self.end(s)
            self.held[s] = {}
            self.locks.unlock(s)
        elif self.held[s]:
            pass  # statements of its own tables wait for nobody
        else:
            name, write = next(iter(tables.items()))
            self.begin(s, "use", {name: write}, self.use(s, name, write))
        await self.settle()

    async def lock(self, s: int, tables: dict[str, bool]) -> None:
        await self.locks.lock(s, [*tables.items()], 3600, self.uses, self.exclusive_access)
        self.held[s] = tables

    async def use(self, s: int, name: str, write: bool) -> None:
        await self.locks.admit(s, [name], write, 3600, bool(self.read[s] or self.written[s]))
        if write:
            self.written[s].add(name)
        else:
            self.read[s].add(name)
            self.locks.note_read(s, [name])

    def begin(self, s: int, what: str, tables: dict[str, bool], work: Awaitable[None]) -> None:
        self.waiting[s] = what, tables, asyncio.ensure_future(work)

    def end(self, s: int) -> None:
        """End the session's transaction."""
        self.read[s].clear()
        self.written[s].clear()
        self.locks.forget_reads(s)
        self.locks.wake()

    def uses(self, wanted: Tables) -> Iterator[Use]:
        """As if a transaction's writes were those of one long statement."""
        yield from ((name, s) for s in self.sessions for name in sorted(self.written[s]) if name in wanted)

    @asynccontextmanager
    async def exclusive_access(self, tables: Sequence[str], wait_s: float) -> AsyncIterator[None]:
        await asyncio.sleep(0)  # others act meanwhile
        yield

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)
            for s, (_, _, task) in list(self.waiting.items()):
                if task.done():
                    del self.waiting[s]
                    assert task.cancelled() or task.exception() is None, "no session waits in a cycle here"

    # ------------------------------------------------------------ the reference
    def check(self) -> None:
        for s, tables in self.held.items():
            for name, write in tables.items():
                for other in self.sessions:
                    if other != s:
                        assert not (write or self.held[other].get(name, False)) or name not in self.held[other]
                        assert name not in self.written[other] and not (write and name in self.read[other])
        for s, (what, tables, _) in self.waiting.items():
            assert any(self.blocks(s, what, other, name, write)
                       for other in self.sessions if other != s for name, write in tables.items()), "a lost wake-up"

    def blocks(self, s: int, what: str, other: int, name: str, write: bool) -> bool:
        locked = [self.held[other]]
        if other in self.waiting and self.waiting[other][0] == "lock":
            locked.append(self.waiting[other][1])
        if any(name in tables and (write or tables[name]) for tables in locked):
            return True
        return what == "lock" and (name in self.written[other] or (write and name in self.read[other]))


@pytest.mark.parametrize("seed", range(100))
def test_random_interleavings(seed: int) -> None:
    async def run() -> None:
        rig = Rig(seed)
        for _ in range(200):
            await rig.step()
            rig.check()
        for s in rig.sessions:  # all sessions go
            if s in rig.waiting:
                rig.waiting[s][2].cancel()
            rig.end(s)
            rig.locks.unlock(s)
        await rig.settle()
        for s in rig.sessions:
            rig.locks.unlock(s)
        assert not rig.waiting and not rig.locks.busy and not rig.locks.reads_wait and not rig.locks.waits

    asyncio.run(run())
