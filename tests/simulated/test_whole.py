"""The whole server but Spark, in one process under seeded schedules: what each client reads of its own rows is what it
wrote, and what was acknowledged is there, whoever dies.  `make simulate` runs more."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noria.core.errors import SqlError
from noria.core.errors.codes import DISK_FULL
from noria.core.keys import shard_of
from noria.core.types import INT
from noria.dataflow.messages.packets import Inspect, Migrate, Migrated, Read, RenameView, Write
from noria.runtime.link.link import LinkState, WorkerLink
from seeds import each
from simulated.clients import TABLES, Client
from simulated.loop import SeededLoop
from simulated.play import play
from simulated.server import Simulated

SEEDS = int(os.environ.get("NORIA_WHOLE_SEEDS", "8"))
FIRST = int(os.environ.get("NORIA_WHOLE_FIRST", "0"))


@pytest.mark.parametrize("block", range(2))
def test_each_reads_what_it_wrote_whoever_dies(block: int) -> None:
    each(range(FIRST + block * SEEDS // 2, FIRST + (block + 1) * SEEDS // 2), play)


def test_the_same_seed_is_the_same_schedule() -> None:
    assert play(FIRST, steps=6) == play(FIRST, steps=6)


async def started(sim: Simulated, *statements: str) -> Client:
    """Start the servers, create the tables and run the statements.  Returns the client that ran them."""
    await sim.start()
    client = Client(sim, 1)
    for text in (*TABLES, *statements):
        await client.run(text)
    return client


def play_out(sim: Simulated, test: Coroutine[Any, Any, None]) -> None:
    try:
        with asyncio.Runner(loop_factory=lambda: sim.loop) as runner:
            runner.run(test)
    finally:
        sim.stop()


def test_a_view_is_found_though_all_workers_died_while_it_was_made(tmp_path: Path) -> None:
    """One after the other, each before it could take the change in: none of their answers tells where its keys are."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 2, 1)

    def dies(w: int) -> None:
        """When it is sent a change of the program, which it does not read, and others are up."""
        assert sim.life is not None
        link, others = sim.life.links[w], sim.life.links[:w]
        send, deaths = link.send, list[asyncio.Task[None]]()

        async def die() -> None:
            for other in others:
                await other.up()
            sim.kill(w)

        def sent(body: Any, seq: int) -> None:
            if isinstance(body, Migrate) and not deaths:
                deaths.append(asyncio.ensure_future(die()))
            else:
                send(body, seq)

        link.send = sent

    async def test() -> None:
        client = await started(sim, "INSERT INTO users VALUES (5, 'a', 7)")
        for w in range(2):
            dies(w)
        left = 4  # the view is made beside answers without one
        while left:
            assert await client.run("SELECT id, name FROM users WHERE owner = 7") == [(5, "a")]
            await asyncio.sleep(1)
            left -= min(p.incarnation for p in sim.processes.values()) > 1

    play_out(sim, test())


@pytest.mark.parametrize("decided", [True, False])
def test_all_workers_die_between_a_decision_and_a_change_of_the_program(tmp_path: Path, decided: bool) -> None:
    """Worker 0 has made the change; worker 2 has not, for it has a part of a statement prepared, of which worker 1
    tells (or told) the decision.  All come up: the part is settled, the change is taken in, the statement is whole."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 3, 1)
    numbers = np.arange(100)
    ids = [int(numbers[shard_of([numbers], [INT], 3) == w][0]) for w in (1, 2)]

    async def test() -> None:
        await sim.start()
        client, programmer = Client(sim, 1), Client(sim, 2)
        for text in TABLES:
            await client.run(text)
        assert sim.life is not None
        links = sim.life.links
        deciding = asyncio.Event()
        send, told = links[1].send, links[1].book.changes.answered

        def sent(body: Any, seq: int) -> None:
            """The decision is under way when worker 1 is lost, before or after it took it in."""
            if isinstance(body, Write) and body.group:
                deciding.set()
            if decided or not (isinstance(body, Write) and body.group):
                send(body, seq)

        links[1].send = sent
        links[1].book.changes.answered = (
            lambda *reply: deciding.is_set() or told(*reply))
        rows = ", ".join(f"({i}, 1, 1, 1)" for i in ids)
        inserted = asyncio.ensure_future(client.run(f"INSERT INTO posts VALUES {rows}"))
        await deciding.wait()
        changed = asyncio.ensure_future(programmer.run("CREATE VIEW late AS SELECT id, score FROM posts WHERE id = ?"))
        while not any(isinstance(body, Migrate) for body, _ in links[2].book.changes.waiting):
            await asyncio.sleep(0.01)
        for w in range(3):
            sim.kill(w)
        links[1].send, links[1].book.changes.answered = send, told
        await asyncio.wait([inserted, changed])
        assert changed.exception() is None
        found = [await programmer.run(f"SELECT id, score FROM late WHERE id = {i}") for i in ids]
        assert found in ([[(i, 1)] for i in ids], [[], []]) and (not decided or found[0])
        assert inserted.exception() is not None or found[0]

    play_out(sim, test())


COUNTED = "CREATE OR REPLACE VIEW stamp AS SELECT author, COUNT(*) AS n FROM posts WHERE author = ? GROUP BY author"


FULL = "CREATE MATERIALIZED VIEW late AS SELECT author, COUNT(*) AS n FROM posts GROUP BY author"


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_worker_that_is_lost_in_a_change_has_it_once(tmp_path: Path, lost: str) -> None:
    """It takes the graph of another: of one that has the change, which still waits for the lost one ("before"), or of
    one that has not, while the lost one had made it ("after").  Nobody waits for what it lacks."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 3, 1)

    async def test() -> None:
        client = await started(sim, "INSERT INTO posts VALUES " + ", ".join(f"({i}, 1, {i % 7}, 1)" for i in range(70)))
        assert sim.life is not None
        links = sim.life.links
        dies, keepers = (links[1], links[:1]) if lost == "before" else (links[0], links[1:])

        def holds(link: WorkerLink) -> None:
            """The change that gives the new view its name is on its way until the lost worker is down, or up again."""
            send, held = link.send, list[asyncio.Task[None]]()

            async def later(body: Any, seq: int) -> None:
                sim.kill(dies.worker)
                while dies.state is LinkState.UP:
                    await asyncio.sleep(0)
                if lost == "after":
                    await dies.up()
                send(body, seq)

            def sent(body: Any, seq: int) -> None:
                if isinstance(body, Migrate) and any(isinstance(s, RenameView) for s in body.steps) and not held:
                    held.append(asyncio.ensure_future(later(body, seq)))
                else:
                    send(body, seq)

            link.send = sent

        for link in keepers:
            holds(link)
        await client.run(COUNTED)
        for author in range(7):
            assert await client.run(f"SELECT author, n FROM stamp WHERE author = {author}") == [(author, 10)]

    play_out(sim, test())


def test_a_change_is_taken_back_at_a_worker_that_has_it_from_another_one(tmp_path: Path) -> None:
    """Worker 1 is lost in the change, cannot store it when it is back, and takes over the graph of worker 0, which has
    it.  It kept the view for itself; another view of that name then never got its first rows from there."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 3, 1)

    async def test() -> None:
        client = await started(sim, "INSERT INTO posts VALUES " + ", ".join(f"({i}, 1, {i % 7}, 1)" for i in range(70)))
        assert sim.life is not None
        link, links = sim.life.link, sim.life.links
        sends, refused, held = [one.send for one in links], list[int](), list[asyncio.Task[None]]()

        def to_the_first(body: Any, seq: int) -> None:
            if isinstance(body, Migrate) and not refused:
                sim.kill(1)
            sends[0](body, seq)

        def to_the_second(body: Any, seq: int) -> None:
            if isinstance(body, Migrate) and links[1].state is LinkState.RECOVERING and not refused:
                refused.append(seq)
                full = Migrated(seq, SqlError(*DISK_FULL, "Disk full"))
                loop.call_soon(links[1].book.deliver, full)
            else:
                sends[1](body, seq)

        async def later(body: Any, seq: int) -> None:
            while links[1].stats.workers < 3:  # the second life cannot store the change
                await asyncio.sleep(0.01)
            await links[1].up()
            sends[2](body, seq)

        def to_the_third(body: Any, seq: int) -> None:
            if isinstance(body, Migrate) and not held:
                held.append(asyncio.ensure_future(later(body, seq)))
            else:
                sends[2](body, seq)

        for one, sent in zip(links, (to_the_first, to_the_second, to_the_third), strict=True):
            one.send = sent
        with pytest.raises(SqlError, match="Disk full"):
            await client.run(FULL)
        await link.up()
        plans = [(await one.ask(Inspect(0, "graph plan"), True)).value["plan"] for one in links]
        assert all({v.name for v in plan.views} == {v.name for v in plans[0].views} for plan in plans)
        await client.run(FULL)
        assert sorted(await client.run("SELECT author, n FROM late")) == [(author, 10) for author in range(7)]

    play_out(sim, test())


def test_the_worker_whose_graph_another_takes_over_is_lost(tmp_path: Path) -> None:
    """It comes up while the other one has the graph, and does not serve yet: it takes it from there.  They were started
    as if both knew nothing, and the first of the two questions for the graph was never answered."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 2, 1)

    async def test() -> None:
        client = await started(sim, "INSERT INTO users VALUES (5, 'a', 7)")
        assert sim.life is not None
        donor, taker = sim.life.links
        send, later = taker.send, list[asyncio.Task[None]]()

        async def lost(body: Any, seq: int) -> None:
            sim.kill(0)
            while donor.state is LinkState.UP:
                await asyncio.sleep(0)
            while donor.state is not LinkState.RECOVERING:
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)
            send(body, seq)

        def sent(body: Any, seq: int) -> None:
            if isinstance(body, Migrate) and body.adopt is not None and not later:
                later.append(asyncio.ensure_future(lost(body, seq)))
            else:
                send(body, seq)

        taker.send = sent
        sim.kill(1)
        while not later:
            await asyncio.sleep(0.01)
        await later[0]
        await asyncio.wait_for(sim.life.link.up(), 60)
        assert await client.run("SELECT id, name FROM users WHERE owner = 7") == [(5, "a")]
        await client.run(COUNTED)

    play_out(sim, test())


def test_a_read_while_all_workers_are_brought_back(tmp_path: Path) -> None:
    """Nobody knows yet whose its key is: worker 0 was asked, which found that it has no such rows."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 2, 1)
    numbers = np.arange(100)
    [author, *_] = numbers[shard_of([numbers], [INT], 2) == 1].tolist()

    async def test() -> None:
        client = await started(sim, f"INSERT INTO posts VALUES (1, 1, {author}, 1)", COUNTED)
        assert await client.run(f"SELECT n FROM stamp WHERE author = {author}") == [(1,)]
        assert sim.life is not None
        link: Any = sim.life.link
        found = list[asyncio.Task[Any]]()

        async def on_hello(hello: Any) -> None:
            """The program of before is forgotten, and it has not been told yet."""
            assert not link._program.mirror.views
            found.append(asyncio.ensure_future(link.ask(Read(0, "stamp", [(author,)]), True)))
            await asyncio.sleep(1)
            await welcome(hello)

        welcome, link.on_hello = link.on_hello, on_hello
        for w in range(2):
            sim.kill(w)
        while not found:
            await asyncio.sleep(0.01)
        assert (await found[0]).rows.to_pylist() == [{"c0": author, "c1": 1, "__key": 0}]

    play_out(sim, test())


def test_all_are_lost_in_a_change_and_then_one_again(tmp_path: Path) -> None:
    """The one takes the views over as all were brought back with them, not as they were when the change began: they
    were of other definitions, and nobody could read the keys."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 3, 1)

    async def test() -> None:
        await sim.start()
        client, programmer = Client(sim, 1), Client(sim, 2)
        for text in (*TABLES, "CREATE MATERIALIZED VIEW each AS SELECT author, id FROM posts WHERE author = ?",
                     "INSERT INTO posts VALUES " + ", ".join(f"({i}, 1, {i}, 1)" for i in range(9))):
            await client.run(text)
        assert sim.life is not None
        links = sim.life.links
        links[2].reserve_place("something else")  # so the change waits there, in two lives of the worker
        changed = asyncio.ensure_future(programmer.run(COUNTED))
        while not any(isinstance(body, Migrate) for body, _ in links[2].book.changes.waiting):
            await asyncio.sleep(0.01)
        for lost in ((0, 1, 2), (1,)):
            for w in lost:
                sim.kill(w)
            while all(link.state is LinkState.UP for link in links):
                await asyncio.sleep(0.01)
            await sim.life.link.up()
        links[2].release_place("something else")
        await changed
        for author in range(9):
            assert await client.run(f"SELECT id FROM each WHERE author = {author}") == [(author,)]
        assert await client.run("SELECT author, n FROM stamp WHERE author = 3") == [(3, 1)]

    play_out(sim, test())


def test_all_workers_come_up_in_one_moment(tmp_path: Path) -> None:
    """As when the front end stood still meanwhile: the program is brought back once.  It was for each of them, and
    worker 0 had the views of the first time, the others those of the last."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 3, 1)

    async def test() -> None:
        client = await started(
            sim, "INSERT INTO posts VALUES " + ", ".join(f"({i}, 1, {i}, 1)" for i in range(9)), COUNTED)
        assert sim.life is not None
        links, told, welcome = sim.life.links, list[Any](), sim.life.link.on_hello

        async def welcomed(hello: Any) -> None:
            told.append(hello)
            await welcome(hello)

        def together(appeared: Any) -> Any:
            async def appear(hello: Any) -> None:
                while any(link.state is not LinkState.RECOVERING for link in links):
                    await asyncio.sleep(0.01)
                await appeared(hello)

            return appear

        sim.life.link.on_hello = welcomed
        for link in links:
            link.on_hello = together(link.on_hello)
        for w in range(3):
            sim.kill(w)
        while any(link.state is LinkState.UP for link in links):
            await asyncio.sleep(0.01)
        await sim.life.link.up()
        assert len(told) == 1
        for author in range(9):
            assert await client.run(f"SELECT author, n FROM stamp WHERE author = {author}") == [(author, 1)]

    play_out(sim, test())


def test_nodes_have_one_number_at_all_workers(tmp_path: Path) -> None:
    """Also after all were lost in a change that one of them had not been sent: that one made it first, under the number
    of before, and what it was asked for later was of no node there."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 3, 1)

    async def test() -> None:
        await sim.start()
        client, programmer = Client(sim, 1), Client(sim, 2)
        for text in (*TABLES, "CREATE MATERIALIZED VIEW one_more AS SELECT author, id FROM posts WHERE author = ?",
                     "INSERT INTO posts VALUES " + ", ".join(f"({i}, 1, {i}, 1)" for i in range(9)), COUNTED):
            await client.run(text)
        assert sim.life is not None
        links = sim.life.links
        links[2].reserve_place("something else")  # so the change waits there
        changed = asyncio.ensure_future(programmer.run(COUNTED.replace("COUNT(*)", "COUNT(*) + 1")))
        while not any(isinstance(body, Migrate) for body, _ in links[2].book.changes.waiting):
            await asyncio.sleep(0.01)
        for w in range(3):
            sim.kill(w)
        while any(link.state is LinkState.UP for link in links):
            await asyncio.sleep(0.01)
        await sim.life.link.up()
        links[2].release_place("something else")
        await changed
        numbers = [{n["id"]: n["does"] for n in (await link.ask(Inspect(0, "graph"))).value} for link in links]
        assert numbers[0] == numbers[1] == numbers[2]
        for author in range(9):
            assert await client.run(f"SELECT author, n FROM stamp WHERE author = {author}") == [(author, 2)]

    play_out(sim, test())


def test_one_is_lost_while_it_does_again_what_was_under_way(tmp_path: Path) -> None:
    """Of all that come up: nobody answers what it was sent, and all begin again."""
    loop = SeededLoop(random.Random(1))
    sim = Simulated(tmp_path, loop, 2, 1)
    numbers = np.arange(100)
    post = int(numbers[shard_of([numbers], [INT], 2) == 1][0])

    async def test() -> None:
        await sim.start()
        client, writer = Client(sim, 1), Client(sim, 2)
        for text in TABLES:
            await client.run(text)
        assert sim.life is not None
        link = sim.life.links[1]
        send, tries = link.send, list[LinkState]()

        def sent(body: Any, seq: int) -> None:
            """Not before all are lost, nor the next time, when it ends the worker."""
            if not isinstance(body, Write) or len(tries) > 1:
                send(body, seq)
                return
            tries.append(link.state)
            if link.state is LinkState.RECOVERING:
                sim.kill(1)

        link.send = sent
        written = asyncio.ensure_future(writer.run(f"INSERT INTO posts VALUES ({post}, 1, 1, 1)"))
        while not tries:
            await asyncio.sleep(0.01)
        for w in range(2):
            sim.kill(w)
        await written
        assert tries == [LinkState.UP, LinkState.RECOVERING]
        assert await client.run(f"SELECT score FROM posts WHERE id = {post}") == [(1,)]

    play_out(sim, test())
