"""The in-process link answers like the link of a separate process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noria.dataflow.messages.packets import Hello, Ingest, Inspect, Migrate, Read
from noria.runtime.link.inprocess import InProcessLink
from noria.runtime.link.link import Link, LinkState, WorkerUnavailable
from noria.runtime.transport.shard_owner import LockBusy
from runtime.fake_worker import commits, insert
from runtime.processes import config, run


def test_the_same_interface_and_the_same_answers(tmp_path: Path) -> None:
    async def test() -> None:
        order: list[str] = []
        what = config(tmp_path)
        concrete = InProcessLink(what)

        async def on_hello(hello: Hello) -> None:
            reply = await link.recover(Migrate((), hello.recipe, durable=False))
            order.append(f"recovered {reply.seq} with {hello.recipe}")

        link: Link = concrete
        link.on_hello = on_hello
        await link.start()
        assert link.state is LinkState.UP and order == ["recovered 0 with ()"]
        replies = await asyncio.gather(*(link.change(insert(i)) for i in range(50)))
        assert [r.results[0].last_insert_id for r in replies] == list(range(50))
        assert len(commits(what.shard_dir)) == 1
        assert (await link.change(Migrate((), ("A",)))).error is None
        assert (await link.request(Ingest("t", (), 99))).request == 3
        assert (await link.request(Read(0, "v", []))).rows == [*range(50), 99]
        with pytest.raises(LockBusy, match="open in this process"):
            await InProcessLink(what).start()
        await link.close()
        with pytest.raises(WorkerUnavailable):
            await link.ask(Inspect(0, "stats"))
        again = InProcessLink(what, on_hello=on_hello)
        link = again
        await again.start()
        assert order[-1] == "recovered 0 with ('A',)"
        assert (await again.ask(Inspect(0, "stats"))).value["incarnation"] == 3
        await again.close()

    run(test)


def test_an_exception_in_the_worker_is_raised_to_the_caller(tmp_path: Path) -> None:
    """No other process can be started: later requests raise the exception too, until the link is closed."""

    async def test() -> None:
        link = InProcessLink(config(tmp_path))
        await link.start()
        with pytest.raises(WorkerUnavailable, match="ordered to raise"):
            await link.change(insert(1, "raise"))
        with pytest.raises(WorkerUnavailable, match="ordered to raise"):
            await link.ask(Inspect(0, "stats"))
        await link.close()

    run(test)
