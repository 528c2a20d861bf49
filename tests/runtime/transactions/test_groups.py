"""Statements over several shards under random schedules and crashes: each is done at all workers or at none, and its
reported outcome is true.  A statement's plan is still valid when it is executed.  Workers are models that follow the
rules of `Prepare`, `Write` and `Decide`."""

from __future__ import annotations

import asyncio
import os
import random
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.core.statements import Delete, Move, StatementEffect, WriteResult
from noria.dataflow.messages.packets import Decide, Done, Hello, Prepare, Write, Wrote
from noria.runtime.link.change_queue import Change, PendingReplies, ReservedPlace, WorkerUnavailable
from noria.runtime.link.commit_order import CommitOrder
from noria.runtime.link.link import LinkState
from noria.runtime.routing.write_routing import RoutedWrite
from noria.runtime.transactions import two_phase_commit as groups_module
from noria.runtime.transactions.group_commit import GroupOutcome
from noria.runtime.transactions.read_your_writes import ReadYourWrites
from noria.runtime.transactions.two_phase_commit import TwoPhaseCommits
from noria.runtime.transactions.writes import PlannedOutcome, RoutedWrites

DUPLICATE = SqlError(1062, "23000", "a duplicate")


def table_of(name: str) -> str:
    return "xyz"[zlib.crc32(name.encode()) % 3]


def does(name: str) -> Delete:
    """A statement: a Delete whose "condition" is a name that says what it does.  A planned one is a Move, which has the
    number of its worker's rows of the table at the time of the plan."""
    return Delete(table_of(name), name)


def name_of(statement: Any) -> str:
    return statement.where if isinstance(statement, Delete) else statement.added[0].decode()


class Shard:
    """The durable state of a worker."""

    def __init__(self, number: int):
        self.number = number
        self.rows: list[str] = []
        self.prepared: dict[str, tuple[Any, int]] = {}
        self.decided: set[str] = set()
        self.done: dict[int, Wrote] = {}
        self.last = self.full = 0  # how often its disk will be full
        self.damaged = False

    def hello(self) -> Hello:
        prepared = tuple((g, c) for g, (_, c) in self.prepared.items())
        return Hello(self.number, 1, 1, self.last, (), (), prepared=prepared, decided=tuple(self.decided))

    def handle(self, seq: int, body: Any) -> Wrote:
        if seq in self.done:
            return self.done[seq]
        assert seq > self.last, (seq, self.last)  # a withdrawn change may never arrive
        self.last = seq
        self.done[seq] = Wrote(seq, self._results(body))
        return self.done[seq]

    def _results(self, body: Any) -> tuple[WriteResult, ...]:
        if isinstance(body, Decide):
            if body.group in self.prepared and self.full > 0:
                self.full -= 1
                return (WriteResult(error=SqlError(1021, "HY000", "Disk full")),)
            if body.group in self.prepared and self.damaged:
                return (WriteResult(error=SqlError(1194, "HY000", "a file of it cannot be read")),)
            prepared = self.prepared.pop(body.group, None)
            if prepared is None or not body.commit:
                return ()
            return self._apply(prepared[0])
        tables = {s.table for some, _ in self.prepared.values() for s in some}
        assert not tables or (isinstance(body, Write) and not body.group and all(
            s.table not in tables for s in body.statements)), "a change came between a Prepare and its Decide"
        fails = [f"fail at {self.number}" in name_of(s) for s in body.statements]
        if any(fails) and isinstance(body, Write) and not body.group:  # each one alone
            self._apply([s for s, f in zip(body.statements, fails, strict=True) if not f])
        if any(fails):
            return tuple(WriteResult(error=DUPLICATE) if f else WriteResult() for f in fails)
        if isinstance(body, Prepare):
            self.prepared[body.group] = body.statements, body.coordinator
            return tuple(WriteResult(1) for _ in body.statements)
        self.decided -= set(body.forget)
        if body.group:
            self.decided.add(body.group)
        return self._apply(body.statements)

    def rows_of(self, table: str) -> bytes:
        return b"%d" % sum(table_of(name) == table for name in self.rows)

    def _apply(self, statements: Any) -> tuple[WriteResult, ...]:
        for s in statements:
            assert not isinstance(s, Move) or set(s.removed) == {self.rows_of(s.table)}, "the plan is of other rows"
        self.rows += [name_of(s) for s in statements]
        return tuple(WriteResult(1) for _ in statements)


class Line:
    """A link to a shard that may die with packets in flight, or after a commit and before its answer."""

    def __init__(self, shard: Shard, rng: random.Random, come_back: Callable[[Line], Any], all: Sequence[Shard] = ()):
        self.shard, self._rng, self._come_back, self._all = shard, rng, come_back, all
        self.book, self._up, self.hello = PendingReplies(), True, shard.hello()
        self.lost: Callable[[int], None] = lambda worker: None

    @property
    def prepared_group(self) -> str:
        return self.book.changes.prepared_group

    def gate(self, group: str) -> None:
        self.book.changes.gated.add(group)

    def release(self, group: str) -> None:
        self.book.changes.release(group)

    def pass_by(self, group: str) -> None:
        self.book.changes.pass_by(group)

    def submit(self, body: Change) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.book.changes.add(body, future)
        return future

    def cancel(self, change: asyncio.Future[Any]) -> None:
        self.book.changes.give_up(change)

    def withdraw(self, change: asyncio.Future[Any], sent: bool) -> None:
        self.book.changes.withdraw(change, sent)

    @property
    def state(self) -> LinkState:
        return LinkState.UP if self._up else LinkState.DOWN

    def reserve_place(self, group: str) -> asyncio.Future[Any]:
        return self.submit(ReservedPlace(group))

    def fill_place(self, group: str, body: Change) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.book.changes.fill_place(group, body, future)
        return future

    def release_place(self, group: str) -> None:
        self.book.changes.fill_place(group, None, asyncio.get_running_loop().create_future())

    async def ask(self, body: Any, retry: bool = False) -> Done:
        """The plan of a statement, for the workers in its name."""
        for _ in range(self._rng.randrange(20)):
            await asyncio.sleep(0)
        await self.up()
        name = name_of(body.statement)
        to = [int(w) for w in name.partition(" to ")[2].partition(" ")[0]]
        parts = {w: (Move(table_of(name), (self._all[w].rows_of(table_of(name)),), (name.encode(),)),) for w in to}
        return Done(0, StatementEffect(WriteResult(1), parts))

    async def up(self) -> None:
        while not self._up:
            await asyncio.sleep(0)

    async def first(self, body: Change) -> Any:
        flight = self.book.changes.begun(body, asyncio.get_running_loop().create_future())
        flight.sent = True
        reply = self.shard.handle(flight.seq, flight.body)
        self.book.deliver(reply)
        return reply

    async def step(self, kill: float) -> None:
        if not self._up:
            self.hello = self.shard.hello()  # its Hello, before packets in flight are sent again
            for f in tuple(self.book.changes.in_flight):
                f.parts.append((0, asyncio.get_running_loop().create_future()))  # as `WorkerQueue.replay` waits for it
                self.book.deliver(self.shard.handle(f.seq, f.body))
            with suppress(SqlError):  # it restarts once more
                await self._come_back(self)
                self._up = True
            return
        flight = self.book.changes.next()
        if flight is None:
            return
        dies = self._rng.random() < kill
        reply = self.shard.handle(flight.seq, flight.body) if not dies or self._rng.random() < 0.5 else None
        if dies:
            self._up = False
            for f in self.book.changes.in_flight:
                f.sent = False
            self.lost(self.shard.number)
        elif reply is not None:
            self.book.deliver(reply)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "AGAIN_S", 0.0)


@pytest.mark.parametrize("seed", range(int(os.environ.get("NORIA_GROUP_SEEDS", "60"))))
def test_statements_are_atomic_under_random_crashes(seed: int) -> None:
    async def test() -> None:
        rng = random.Random(seed)
        shards = [Shard(w) for w in range(3)]
        ended: dict[str, set[str]] = {}  # of earlier front ends: the reported outcomes of their statements
        for epoch in range(1, 4):
            await front_end(rng, shards, epoch, ended)
        for shard in shards:
            assert not shard.prepared and len(set(shard.rows)) == len(shard.rows)

    asyncio.run(asyncio.wait_for(test(), 60))


async def front_end(rng: random.Random, shards: list[Shard], epoch: int, ended: dict[str, set[str]]) -> None:
    """One front end's life: it sends some statements, and ends before all are answered."""
    groups: TwoPhaseCommits

    async def come_back(line: Line) -> None:
        await groups.resolve(line.hello, lambda w: ())

    lines = [Line(s, rng, come_back, shards) for s in shards]
    for line in lines:
        line.shard.last, line.shard.done = 0, {}
    groups = TwoPhaseCommits(lines, epoch, CommitOrder())
    writes = RoutedWrites(lines, groups, ReadYourWrites(lines))
    for line in lines:
        line.lost = writes.lost
        line.shard.full = 0
        await groups.resolve(line.hello, lambda w: tuple(shards[w].decided))
    check(shards, ended)
    tasks: dict[str, tuple[asyncio.Future[Any], list[int]]] = {}
    last = rng.randrange(100, 400)
    for turn in range(last):
        if rng.random() < 0.3:
            name, some = f"{epoch}:{turn}", sorted(rng.sample(range(3), rng.randint(1, 3)))
            if rng.random() < 0.2:
                name += f" fail at {rng.choice(some)}"
            if rng.random() < 0.4:
                at, name = rng.sample(range(3), rng.randint(1, 2)), f"{name} to {''.join(map(str, some))} "
                tasks[name] = writes.begin(RoutedWrite({w: does(name) for w in at}, moves=True))[0], some
            elif len(some) > 1:
                few = rng.random() < 0.8  # may share a group
                tasks[name] = writes.begin(RoutedWrite({w: does(name) for w in some}, few=few))[0], some
            else:
                tasks[name] = lines[some[0]].submit(Write((does(name),))), some
        if rng.random() < 0.05:
            task = rng.choice(list(tasks.values()) or [None])
            if isinstance(task, tuple) and isinstance(task[0], asyncio.Task):
                writes.give_up(task[0])
        await rng.choice(lines).step(0.1)
        rng.choice(shards).full = int(rng.random() < 0.02)
        await asyncio.sleep(0)
    if epoch == 3:
        for shard in shards:
            shard.full = 0
        while not all(task.done() for task, _ in tasks.values()):
            await rng.choice(lines).step(0.1)
            await asyncio.sleep(0)
        for line in lines:  # packets in flight that nobody waits for
            for _ in range(20):
                await line.step(0)
                await asyncio.sleep(0)
    for name, (task, some) in tasks.items():
        ended[name] = verdict(task), set(some)
        if ended[name][0] == "done" and isinstance(outcome := task.result(), GroupOutcome):
            assert [r.affected for r in outcome.results] == [1 for _ in some], (name, outcome)
        task.cancel()
    await asyncio.gather(*(t for t, _ in tasks.values()), return_exceptions=True)
    if epoch == 3:
        check(shards, ended)


def verdict(task: asyncio.Future[Any]) -> str:
    if not task.done() or task.cancelled():
        return "unknown"
    if task.exception() is not None:
        return "failed" if isinstance(task.exception(), SqlError) else "unknown"
    outcome = task.result()
    if isinstance(outcome, Wrote | GroupOutcome):
        outcome = outcome.results
    results = [outcome.result] if isinstance(outcome, PlannedOutcome) else outcome
    return "failed" if any(r.error for r in results) else "done"


def check(shards: list[Shard], ended: dict[str, Any]) -> None:
    """Each statement of an earlier front end is at all its workers or at none, as its outcome was reported."""
    for name, (reported, some) in ended.items():
        there = {s.number for s in shards if name in s.rows}
        assert there in (set(), some), (name, reported, there, some)
        if reported != "unknown":
            assert bool(there) == (reported == "done"), (name, reported, there)


def test_a_part_that_a_damaged_file_prevents_is_reported_and_done_later() -> None:
    async def test() -> None:
        groups: TwoPhaseCommits

        async def come_back(line: Line) -> None:
            await groups.resolve(line.hello, lambda w: ())

        rng = random.Random(1)
        lines = [Line(Shard(w), rng, come_back) for w in range(2)]
        groups = TwoPhaseCommits(lines, 1, CommitOrder())
        lines[1].shard.damaged = True
        task = groups.begin({w: (does("a"),) for w in range(2)})
        while not task.done():
            await rng.choice(lines).step(0)
            await asyncio.sleep(0)
        (_, result) = task.result().all()
        assert result.error is not None and "worker 1 does its part when it starts again" in result.error.message
        assert [s.shard.rows for s in lines] == [["a"], []] and lines[1].shard.prepared
        for damaged in (True, False):
            lines[1].shard.damaged = damaged
            lines[1].hello = lines[1].shard.hello()
            await come_back(lines[1])
        assert [s.shard.rows for s in lines] == [["a"], ["a"]] and not lines[1].shard.prepared

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_part_that_a_damaged_file_prevents_is_done_after_two_restarts() -> None:
    """The server restarts and the file is still damaged; then the worker restarts alone, with a good file."""
    async def test() -> None:
        groups: TwoPhaseCommits
        rng = random.Random(1)
        lines = [Line(Shard(w), rng, lambda line: None) for w in range(2)]
        groups = TwoPhaseCommits(lines, 1, CommitOrder())
        lines[1].shard.damaged = True
        task = groups.begin({w: (does("a"),) for w in range(2)})
        while not task.done():
            await rng.choice(lines).step(0)
            await asyncio.sleep(0)
        groups = TwoPhaseCommits(lines, 2, CommitOrder())
        hellos = [line.shard.hello() for line in lines]
        await groups.resolve(hellos[1], lambda w: hellos[w].decided)
        assert lines[1].shard.prepared
        lines[1].shard.damaged = False
        await groups.resolve(lines[1].shard.hello(), lambda w: ())
        assert [s.shard.rows for s in lines] == [["a"], ["a"]] and not lines[1].shard.prepared

    asyncio.run(asyncio.wait_for(test(), 60))


def test_messages_of_a_part_done_before_the_graph_are_unknown() -> None:
    """The worker had no graph, so its tick sent no messages.  Other workers may still need the rows."""
    async def test() -> None:
        rng = random.Random(1)
        lines = [Line(Shard(w), rng, lambda line: None) for w in range(2)]
        groups, sent = TwoPhaseCommits(lines, 1, CommitOrder()), dict[int, Any]()
        task = groups.begin({w: (does("a"),) for w in range(2)}, sent=sent)
        while not lines[0].shard.decided:
            await rng.choice(lines).step(0)
            await asyncio.sleep(0)
        await groups.resolve_running([line.shard.hello() for line in lines])
        while not task.done():
            await lines[1].step(0)
            await asyncio.sleep(0)
        assert [line.shard.rows for line in lines] == [["a"], ["a"]]
        assert sent == {0: (), 1: None}

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_waiting_statements_share_a_group(wrong: int) -> None:
    """One group for all.  If some have errors, these run again alone, and all others run again together."""
    async def test() -> None:
        rng = random.Random(1)
        lines = [Line(Shard(w), rng, lambda line: None) for w in range(2)]
        writes = RoutedWrites(lines, TwoPhaseCommits(lines, 1, CommitOrder()), ReadYourWrites(lines))
        names = [f"{n}" + f" fail at {n % 2}" * (n < wrong) for n in range(20)]
        tasks = [writes.begin(RoutedWrite({w: does(name) for w in range(2)}, few=True)) for name in names]
        while not all(task.done() for task, _ in tasks):
            await rng.choice(lines).step(0)
            await asyncio.sleep(0)
        assert [wrote().results[0].error is not None for _, wrote in tasks] == ["fail" in name for name in names]
        assert all(sorted(line.shard.rows) == sorted(n for n in names if "fail" not in n) for line in lines)
        assert all(line.shard.last <= 2 + 6 * wrong for line in lines)

    asyncio.run(asyncio.wait_for(test(), 60))


def test_only_writes_of_the_same_tables_wait_behind_a_decision_at_a_lost_worker() -> None:
    async def test() -> None:
        shards = [Shard(0), Shard(1)]
        groups: TwoPhaseCommits

        async def come_back(line: Line) -> None:
            await groups.resolve(line.hello, lambda w: ())

        lines = [Line(s, random.Random(0), come_back) for s in shards]
        for line in lines:
            line.all = lines
        groups = TwoPhaseCommits(lines, 1, CommitOrder())
        lines[0].lost = groups.lost
        task = groups.begin({0: (does("a"),), 1: (does("a"),)})
        await lines[1].step(0)  # prepared
        for _ in range(5):
            await asyncio.sleep(0)
        same, behind, other = (lines[1].submit(Write((does(t),))) for t in "aab")
        await lines[1].step(0)
        assert not other.done()  # the decision comes soon
        await lines[0].step(1)
        for _ in range(3):
            await lines[1].step(0)
        await asyncio.sleep(0)
        assert other.done() and not same.done() and not behind.done()
        while not (task.done() and same.done() and behind.done()):
            for line in lines:
                await line.step(0)
                await asyncio.sleep(0)
        assert task.result().done and sorted(shards[1].rows) == ["a", "a", "a", "b"] and shards[0].rows == ["a"]

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_group_fails_if_a_worker_is_unavailable() -> None:
    async def test() -> None:
        shard = Shard(0)
        line = Line(shard, random.Random(1), lambda line: None)
        lost = Line(Shard(1), random.Random(1), lambda line: None)
        groups = TwoPhaseCommits([line, lost], 1, CommitOrder())
        task = groups.begin({0: (does("a"),), 1: (does("a"),)})
        await asyncio.sleep(0)
        lost.book.fail(WorkerUnavailable("it has ended"))
        with pytest.raises(WorkerUnavailable):
            await task
        assert not shard.rows

    asyncio.run(test())
