"""The whole server but Spark, in one process under seeded schedules: what each client reads of its own rows is what it
wrote, and what was acknowledged is there, whoever dies.  `make simulate` runs more."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from noria.dataflow.packets import Migrate
from simulated.clients import TABLES, Client
from simulated.loop import SeededLoop
from simulated.play import play
from simulated.server import Simulated

SEEDS = int(os.environ.get("NORIA_WHOLE_SEEDS", "8"))
FIRST = int(os.environ.get("NORIA_WHOLE_FIRST", "0"))


@pytest.mark.parametrize("block", range(2))
def test_each_reads_what_it_wrote_whoever_dies(block: int) -> None:
    for seed in range(FIRST + block * SEEDS // 2, FIRST + (block + 1) * SEEDS // 2):
        play(seed)


def test_the_same_seed_is_the_same_schedule() -> None:
    assert play(FIRST, steps=6) == play(FIRST, steps=6)


def test_a_view_is_found_though_all_workers_died_while_it_was_made(tmp_path: Path) -> None:
    """One after the other, each before it could take the change in: none of their answers tells where its keys are."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 2, 1)

    def dies(w: int) -> None:
        """When it is sent a change of the program, which it does not read, and others are up."""
        assert sim.life is not None
        link, others = sim.life.links[w], sim.life.links[:w]
        send, deaths = link._send, list[asyncio.Task[None]]()

        async def die() -> None:
            for other in others:
                await other.up()
            sim.kill(w)

        def sent(body: Any, seq: int) -> None:
            if isinstance(body, Migrate) and not deaths:
                deaths.append(asyncio.ensure_future(die()))
            else:
                send(body, seq)

        link._send = sent  # type: ignore[method-assign]

    async def test() -> None:
        await sim.start()
        client = Client(sim, 1)
        for text in (*TABLES, "INSERT INTO users VALUES (5, 'a', 7)"):
            await client.run(text)
        for w in range(2):
            dies(w)
        left = 4  # the view is made beside answers without one
        while left:
            assert await client.run("SELECT id, name FROM users WHERE owner = 7") == [(5, "a")]
            await asyncio.sleep(1)
            left -= min(p.incarnation for p in sim.processes.values()) > 1

    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(test())
    finally:
        sim.stop()
