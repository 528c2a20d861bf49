"""One schedule: a server, clients, changes of the program, and faults, all drawn from a seed."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zlib import crc32

from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Evict
from noria.dataflow.worker import worker
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.routing import scatter_gather
from noria.state.symbols.symbols import SymbolTable
from simulated.clients import TABLES, Client, Lost, Programmer
from simulated.loop import SeededLoop
from simulated.server import Simulated

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # stores sync often


class Play:
    """gap: turns of the loop between two faults, on average, 0 for none; clients: at the same time; steps: of each."""

    def __init__(self, loop: SeededLoop, path: Path, gap: int, clients: int, steps: int):
        rng = self.rng = loop.rng
        self.gap, self.number, self.steps = gap, clients, steps
        self.sim = Simulated(path, loop, rng.choice([2, 3]), rng.choice([1, 2]))
        self.small = rng.random() < 0.5  # memory: it is evicted all the time
        self.clients: list[Client] = []
        self.over = False
        self.restart: asyncio.Future[None] | None = None
        self.did: Counter[str] = Counter()

    async def run(self) -> None:
        await self.sim.start()
        await self._begin()
        self.programmer = Programmer(self.sim)
        lives = [asyncio.ensure_future(self._lives()) for _ in range(self.number)]
        others = [asyncio.ensure_future(self._changes()), asyncio.ensure_future(self._looks())]
        if self.small:
            others.append(asyncio.ensure_future(self._evicts()))
        if self.gap:
            others.append(asyncio.ensure_future(self._faults()))
        await self._all(lives, others)
        self.over = True  # a task that is cancelled as what it waits for comes goes on
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self.restart is not None:
            await self.restart
        await self._at_rest()

    async def _all(self, lives: list[asyncio.Task[Any]], others: list[asyncio.Task[Any]]) -> None:
        """What anybody finds wrong is wrong."""
        waiting = {*lives, *others}
        while not all(t.done() for t in lives):
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def _begin(self) -> None:
        for text in TABLES:
            client = Client(self.sim, 0)
            await client.run(text)
            client.close()

    async def _lives(self) -> None:
        left = self.steps
        while left > 0:
            client = Client(self.sim, len(self.clients) + 1)
            self.clients.append(client)
            await client.live(left)
            left -= client.did["write"] + client.did["read"]

    async def _changes(self) -> None:
        while not self.over:
            await self.sim.loop.after(self.rng.randrange(600))
            await self.programmer.change()
            self.did["change"] += 1

    async def _looks(self) -> None:
        while not self.over:
            await self.sim.loop.after(self.rng.randrange(200))
            await self.programmer.look()
            self.did["look"] += 1

    # ------------------------------------------------------------ faults
    async def _faults(self) -> None:
        sim, rng = self.sim, self.rng
        while not self.over:
            await sim.loop.after(rng.randrange(2 * self.gap))
            kind = rng.choice(["worker", "worker", "mortal", "mortal", "freeze", "cut", "cut", "front", "server"])
            self.did[kind] += 1
            if kind == "worker":
                sim.kill(rng.randrange(sim.workers))
            elif kind == "mortal":
                sim.be_mortal(0.05)
                await sim.loop.after(rng.randrange(100))
                sim.be_mortal(0.0)
            elif kind == "freeze":
                sim.freeze(rng.randrange(sim.workers))
            elif kind == "cut" and sim.meshes:
                rng.choice(list(sim.meshes.values())).cut(rng.randrange(sim.workers))
            elif kind == "front" and sim.fronts:
                rng.choice(list(sim.fronts.values())).die()
            elif kind == "server":
                self.restart = asyncio.ensure_future(self._restart())
                await asyncio.shield(self.restart)  # also when faults are over meanwhile

    async def _restart(self) -> None:
        await self.sim.die()
        await self.sim.start()

    async def _evicts(self) -> None:
        """Some, or all, that one worker has in partial states."""
        while not self.over:
            await self.sim.loop.after(self.rng.randrange(100))
            if self.sim.life is not None:
                with suppress(WorkerUnavailable, SqlError):
                    await self.rng.choice(self.sim.life.links).ask(Evict(0, self.rng.choice([None, 100, 1000])))
                    self.did["evict"] += 1

    # ------------------------------------------------------------ the end
    async def _at_rest(self) -> None:
        sim = self.sim
        sim.be_mortal(0.0)
        assert sim.life is not None
        await sim.life.link.up()
        while len(sim.fronts) < sim.front_ends or sim.loop.possible() or not sim.life.link.is_idle():
            await asyncio.sleep(self.rng.random())
        for client in self.clients:
            await client.at_rest(6)
        (last,) = (Client(sim, 0),)
        names = await last.run("SELECT name, COUNT(*) FROM users GROUP BY name")
        assert all(n == 1 for _, n in names), names
        last.close()


def play(seed: int, gap: int = 200, clients: int = 3, steps: int = 25) -> Counter[str]:
    """With an odd seed, strings that nobody holds go after each step of a worker."""
    rng = random.Random(seed)
    loop = SeededLoop(rng)
    path = Path(tempfile.mkdtemp(prefix="sim", dir=MEMORY))
    made: list[Play] = []

    async def test() -> None:
        made.append(Play(loop, path, gap, clients, steps))
        await made[0].run()

    logging.disable()
    try:
        # hashes of None and of texts are others in each process
        with ExitStack() as patches:
            patches.enter_context(patch.object(scatter_gather, "hash", lambda plan: crc32(repr(plan).encode()),
                                               create=True))
            if seed % 2:
                patches.enter_context(patch.object(worker, "STEPS_PER_CHECK", 1))
                patches.enter_context(patch.object(SymbolTable, "sweep_is_due", lambda table: True))
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(test())
        done = made[0].did
        for client in made[0].clients:
            done += client.did
        return done
    except BaseException as e:
        notes = "\n".join([*made[0].sim.notes[-40:], *(f"client {c.number}:\n  " + "\n  ".join(c.log[-12:])
                                                      for c in made[0].clients if c.log)][-400:]) if made else ""
        raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\n{notes}") from e
    finally:
        logging.disable(logging.NOTSET)
        if made:
            made[0].sim.stop()
        shutil.rmtree(path, ignore_errors=True)


__all__ = ["Lost", "Play", "play"]
