"""Three workers under Spark, each a job of its own: what happens to one happens to no other, and a stop ends all."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from noria.runtime.transport.shard_owner import Process
from runtime.fake_worker import commits, insert
from runtime.processes import run, within
from spark.hosted import START_S, Hosted, hosted

pytestmark = [pytest.mark.long, pytest.mark.spark]
WORKERS = 3
CANCEL = "noria.spark.hosting.workers:cancel_workers"


def pids(it: Hosted) -> list[int]:
    return [link.hello.pid for link in it.links if link.hello is not None]


async def all_write(it: Hosted, value: int) -> None:
    """Each commits the next value, and has all before it once."""
    for link, config in zip(it.links, it.configs, strict=True):
        await within(link.change(insert(value)), START_S)
        assert [v for c in commits(config.shard_dir) for v in c["values"]] == list(range(1, value + 1)), it.story()


async def lose(it: Hosted, victims: set[int], strike: Callable[[], object]) -> None:
    """These are started again, and only these: the others go on answering meanwhile, as the processes they were."""
    before, lived = pids(it), [link.stats.workers for link in it.links]
    told = it.count("worker-ended")
    strike()
    others = [link for w, link in enumerate(it.links) if w not in victims]
    while any(it.links[w].stats.workers == lived[w] for w in victims):
        for link in others:
            assert (await link.request(ask())).value["pid"] in before
        await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(os.sched_yield))])
    for w in victims:
        await within(it.links[w].up(), START_S)
    after = pids(it)
    assert {w for w in range(WORKERS) if before[w] != after[w]} == victims, it.story()
    assert [link.stats.workers - n for link, n in zip(it.links, lived, strict=True)] == \
        [int(w in victims) for w in range(WORKERS)], it.story()
    if len(victims) < WORKERS:
        ends = [e.detail for e in it.events if e.what == "worker-ended"][told:]
        assert {e.split(":")[0] for e in ends} == {f"worker {w}" for w in victims}, it.story()


def ask() -> object:
    from noria.dataflow.messages.packets import Inspect

    return Inspect(0, "who")


def test_one_workers_loss_is_one_workers_loss(tmp_path: Path) -> None:
    async def test() -> None:
        async with hosted(tmp_path, workers=WORKERS, factory="runtime.fake_worker:build_unless_spoilt") as it:
            await all_write(it, 1)
            await lose(it, {1}, lambda: os.kill(pids(it)[1], signal.SIGKILL))
            await all_write(it, 2)
            await lose(it, {2}, lambda: asyncio.ensure_future(it.supervisor.run_job(CANCEL, workers=[2])))
            await lose(it, {0}, lambda: os.kill(pids(it)[0], signal.SIGSTOP))
            await all_write(it, 3)
            await one_is_unusable(it)
            await all_write(it, 4)
            assert it.supervisor.ready is not None
            jvm = it.supervisor.ready.jvm_pid
            await lose(it, {0, 1, 2}, lambda: os.kill(jvm, signal.SIGKILL))
            await all_write(it, 5)
            left = [Process.of(p) for p in [*pids(it), *it.supervisor.processes()]]
            for link in it.links:
                await link.close()
            await it.supervisor.stop()
            assert len(left) == WORKERS + 2 and not any(p is not None and p.alive for p in left)

    run(test, 240)


async def one_is_unusable(it: Hosted) -> None:
    """It is told which, tried again, and comes back once its store is whole; the others are restarted meanwhile."""
    spoilt = it.configs[1].shard_dir / "spoilt"
    spoilt.touch()
    os.kill(pids(it)[1], signal.SIGKILL)
    assert it.supervisor.unusable is not None
    why = await within(asyncio.shield(it.supervisor.unusable), START_S)
    assert why.startswith("worker 1: ") and why.endswith("worker-1 is damaged")
    other = it.links[2].stats.workers
    os.kill(pids(it)[2], signal.SIGKILL)
    await it.until(lambda events: it.links[2].stats.workers > other)
    lived = it.links[1].stats.workers
    spoilt.unlink()
    await it.until(lambda events: it.links[1].stats.workers > lived)
