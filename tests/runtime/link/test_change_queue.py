"""The queue of changes: group commit and resends with random callers, deaths and answers."""

from __future__ import annotations

import asyncio
import random

from noria.core.errors import SqlError
from noria.core.limits import GROUP_ROWS, GROUP_STATEMENTS, PIPELINED_ROWS, POISON_DEATHS, WRITES_IN_FLIGHT
from noria.core.statements import Insert, WriteResult
from noria.dataflow.messages.packets import Migrate, Migrated, Prepare, Write, Wrote
from noria.runtime.link.change_queue import ChangeQueue, InFlightPacket
from noria.runtime.link.poison_requests import PoisonRequests
from seeds import seed


def write(*values: int) -> Write:
    return Write(tuple(Insert("t", (0,), ((v,),)) for v in values))


def test_groups_keep_order_and_bounds() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        queue = ChangeQueue()
        for i in range(GROUP_STATEMENTS + 5):
            queue.add(write(i), loop.create_future())
        queue.add(Migrate((), ()), loop.create_future())
        queue.add(write(-1), loop.create_future())
        sizes = []
        while (flight := queue.next()) is not None:
            assert queue.next() is None  # small ones wait, to share a commit
            sizes.append(len(flight.body.statements) if isinstance(flight.body, Write) else 0)
            queue.answered(flight.seq, Wrote(flight.seq, (WriteResult(),) * sizes[-1]))
        assert sizes == [GROUP_STATEMENTS, 5, 0, 1]  # nothing is merged past the migration
        big = Write((Insert("t", (0,), tuple((i,) for i in range(GROUP_ROWS))),))
        rows = ChangeQueue()
        for body in (write(1), big, write(2)):
            rows.add(body, loop.create_future())
        assert [f.body for f in (rows.next(), rows.next(), rows.next()) if f] == [write(1), big]
        assert len(rows.in_flight) == WRITES_IN_FLIGHT  # a large one is on its way behind the first

    asyncio.run(test())


def test_a_second_waiter_receives_all_results_of_the_packet() -> None:
    """This holds also for a group of statements that a restarting worker executes."""
    async def test() -> None:
        loop = asyncio.get_running_loop()
        queue = ChangeQueue()
        caller, second_waiter = loop.create_future(), loop.create_future()
        queue.add(Write(write(1, 2).statements, "g"), caller)
        flight = queue.next()
        assert flight is not None
        flight.parts.append((0, second_waiter))
        reply = Wrote(flight.seq, (WriteResult(1), WriteResult(error=SqlError(1062, "23000", "taken"))))
        queue.answered(flight.seq, reply)
        assert caller.result() == second_waiter.result() == reply

    asyncio.run(test())


def test_a_write_that_ends_workers_does_not_release_the_prepared_group() -> None:
    """The write may pass the prepared group, whose coordinator is lost."""
    async def test() -> None:
        loop = asyncio.get_running_loop()
        queue, futures = ChangeQueue(), [loop.create_future() for _ in range(3)]
        queue.add(Prepare((Insert("u", (0,), ((1,),)),), "g", 0), futures[0])
        flight = queue.next()
        assert flight is not None
        queue.answered(flight.seq, Wrote(flight.seq, (WriteResult(1),)))
        queue.pass_by("g")
        queue.add(write(1), futures[1])
        queue.add(Write((Insert("u", (0,), ((2,),)),)), futures[2])
        for _ in range(POISON_DEATHS):
            flight = queue.next()
            assert flight is not None and flight.body == write(1)
            queue.worker_died("it ended", flight.seq, PoisonRequests())
        assert futures[1].exception() is not None and queue.prepared_group == "g" and queue.next() is None

    asyncio.run(test())


def test_random_deaths_lose_and_double_nothing() -> None:
    rng = random.Random(seed())

    async def test() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(60):
            queue, expected, futures = ChangeQueue(), [], []
            applied: dict[int, tuple[int, ...]] = {}  # the store: seq -> values; survives deaths
            inbox: list[InFlightPacket] = []
            for _ in range(rng.randrange(1, 30)):
                future = loop.create_future()
                futures.append(future)
                values = range(len(expected), len(expected) + rng.choice([1, 1, PIPELINED_ROWS]))
                queue.add(Write((Insert("t", (0,), tuple((v,) for v in values)),)), future)
                expected.extend(values)
            deaths = 0
            while not all(f.done() for f in futures):
                what = rng.random()
                if what < 0.5 and (flight := queue.next()) is not None:
                    inbox.append(flight)
                elif what < 0.7 and deaths < 1:  # a second death in a row would fail a change
                    deaths += 1
                    for flight in inbox[: rng.randrange(len(inbox) + 1)]:  # committed, not answered
                        apply(applied, flight)
                    inbox.clear()
                    queue.worker_died("test", None, PoisonRequests())
                elif inbox:
                    flight = inbox.pop(0)
                    apply(applied, flight)
                    deaths = 0
                    assert isinstance(flight.body, Write)
                    results = tuple(WriteResult(last_insert_id=s.rows[0][0]) for s in flight.body.statements
                                    if isinstance(s, Insert))
                    assert queue.answered(flight.seq, Wrote(flight.seq, results))
                    assert not queue.answered(flight.seq, Wrote(flight.seq, results))
            firsts = [f.result().results[0].last_insert_id for f in futures]
            assert firsts == sorted(firsts) and len(set(firsts)) == len(futures)
            assert [v for seq in sorted(applied) for v in applied[seq]] == expected

    asyncio.run(test())


def apply(applied: dict[int, tuple[int, ...]], flight: InFlightPacket) -> None:
    assert isinstance(flight.body, Write)
    values = tuple(row[0] for s in flight.body.statements if isinstance(s, Insert) for row in s.rows)
    if flight.seq in applied:
        assert applied[flight.seq] == values, "a resend must carry what was sent first"
    else:
        assert flight.seq == len(applied) + 1, "changes must arrive in order"
        applied[flight.seq] = values


def test_a_migration_answers_its_caller() -> None:
    async def test() -> None:
        queue = ChangeQueue()
        future: asyncio.Future[Migrated] = asyncio.get_running_loop().create_future()
        queue.add(Migrate((), ("x",)), future)
        flight = queue.next()
        assert flight is not None and queue.answered(flight.seq, Migrated(flight.seq))
        assert (await future).seq == 1

    asyncio.run(test())
