"""The same with the real worker on RocksDB: writers go on while it is killed, and every row is there once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from noria.core.statements import Insert
from noria.core.types import BIGINT, Column, TableDef
from noria.dataflow.messages.packets import CreateTable, Inspect, Migrate, Write
from runtime.processes import run, within
from seeds import seed
from spark.hosted import START_S, hosted

pytestmark = [pytest.mark.long, pytest.mark.spark]


def test_rows_survive_kills_of_worker_and_jvm(tmp_path: Path) -> None:
    rng = random.Random(seed())
    table = TableDef("t", (Column("id", BIGINT), Column("by", BIGINT)), (0,))

    async def test() -> None:
        async with hosted(tmp_path, factory="noria.runtime.worker.worker_main:build_worker") as it:
            made = await within(it.link.change(Migrate((CreateTable(table),), ("CREATE TABLE t …",))), START_S)
            assert made.error is None
            written: list[int] = []
            enough = asyncio.Event()

            async def writer(number: int) -> None:
                while not enough.is_set():
                    value = len(written)
                    written.append(value)
                    reply = await it.link.change(Write((Insert("t", (0, 1), ((value, number),)),)))
                    assert reply.results[0].error is None, reply

            writers = [asyncio.create_task(writer(n)) for n in range(6)]
            for victim in ("worker", "worker", "jvm"):
                target = len(written) + rng.randrange(50, 400)
                while len(written) < target:
                    await asyncio.wait(writers, timeout=0.01)
                    assert not any(w.done() for w in writers), [w for w in writers if w.done()]
                again = asyncio.create_task(it.another_worker())
                await asyncio.sleep(0)
                assert it.link.hello is not None and it.supervisor.ready is not None
                os.kill(it.link.hello.pid if victim == "worker" else it.supervisor.ready.jvm_pid, signal.SIGKILL)
                await again
            enough.set()
            await within(asyncio.gather(*writers), START_S)
            rows = (await it.link.ask(Inspect(0, "stats"))).value["tables"]["t"]
            assert rows == len(written)
            assert it.link.hello is not None and it.link.hello.recipe == ("CREATE TABLE t …",)

    run(test, 200)
