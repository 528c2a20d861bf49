"""An event loop without sockets, threads or a clock: what happens next, and when time passes, is drawn from a seed.

It is asyncio's own loop with another selector: where that would wait for descriptors and time, this one lets one of the
things happen that can (a message arrives, a process takes a turn), or time go on to the next timer.  Work for threads
is done at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from simulated.wires import AsyncEnd, End, pair

MOST_TURNS = 100_000  # of the loop: beyond, nothing comes to an end
Happens = Callable[[], object]
PROCESS: ContextVar[object] = ContextVar("process", default=None)  # whose tasks are made


def _made(loop: SeededLoop, work: Any, context: Context | None = None) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    loop.tasks[task] = PROCESS.get() if context is None else context.get(PROCESS)
    return task


class Stuck(AssertionError):
    """Nothing can happen any more, or it has no end."""


class _Chance:
    """The selector.  possible: what could happen now."""

    def __init__(self, rng: random.Random, loop: SeededLoop):
        self._rng, self._loop, self.turns = rng, loop, 0

    def select(self, timeout: float | None) -> list[Any]:
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise Stuck(f"no end after {MOST_TURNS} turns")
        for at, waiting in [w for w in self._loop.waiting if w[0] <= self.turns]:
            self._loop.waiting.remove((at, waiting))
            waiting()
        if timeout == 0 and self._rng.random() < 0.6:
            return []
        possible = self._loop.possible()
        if possible and not (timeout and self._rng.random() < self._loop.haste):
            self._rng.choice(possible)()
        elif timeout is None:
            raise Stuck("everybody waits and nothing is under way")
        elif timeout:
            self._loop.now += timeout
        return []


class SeededLoop(asyncio.BaseEventLoop):
    """haste: how often time goes on though something could happen before."""

    def __init__(self, rng: random.Random):
        super().__init__()
        self.rng, self.now, self.haste = rng, 1000.0, 0.02
        self._selector = self.chance = _Chance(rng, self)
        self.ends: list[AsyncEnd] = []
        self.waiting: list[tuple[int, Happens]] = []  # until how many turns there were
        self.others: Callable[[], list[Happens]] = list
        self.listening: dict[str, tuple[Callable[[], asyncio.Protocol], Context]] = {}
        self.tasks: WeakKeyDictionary[asyncio.Task[Any], object] = WeakKeyDictionary()
        self.set_task_factory(_made)

    async def after(self, turns: int) -> None:
        """Returns after so many more turns."""
        done = self.create_future()
        self.waiting.append((self.chance.turns + turns, lambda: done.done() or done.set_result(None)))
        await done

    def possible(self) -> list[Happens]:
        self.ends = [end for end in self.ends if not end.over]
        return [end.happens for end in self.ends if end.inbox] + self.others()

    # ------------------------------------------------------------ of asyncio's loops
    def time(self) -> float:
        return self.now

    def _process_events(self, events: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: object, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as e:
            done.set_exception(e)
        return done

    async def create_unix_server(self, factory: Callable[[], asyncio.Protocol], path: str) -> _Server:
        Path(path).touch()
        self.listening[path] = factory, copy_context()
        return _Server()

    async def create_unix_connection(self, factory: Callable[[], asyncio.Protocol], path: str) -> Any:
        here = AsyncEnd(self, copy_context())
        self.accept(path, here)
        here.begin(protocol := factory())
        return here, protocol

    def accept(self, path: str, end: End) -> None:
        """Whoever listens there has another connection."""
        factory, context = self.listening[path]
        there = AsyncEnd(self, context)
        pair(end, there)
        there.begin(factory())


class _Server:
    def close(self) -> None:
        pass
