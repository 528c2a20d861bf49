"""Group commit for statements over several shards: all waiting statements of many clients share one two-phase commit.
Call `GroupCommits.add`.

    wait → Prepare, Write, Decide for all of them → each one's result

A group needs three consecutive synced commits, during which its workers accept no other write. With a group for
each statement, that would limit them to a few dozen a second. Statements that wait meanwhile form the next group:
the more clients write, the less each write costs, as in one worker's own commits (`link/change_queue.py`).

Keeps true: each statement is atomic. If one has an error, its group is aborted. The statement then runs once more
alone, for an outcome of its own, and the others run together. No statement runs before an earlier one that concerns the
same workers, except that such a second try runs late. No statement waits for a worker that it does not concern, unless
an earlier statement concerns both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from noria.core.limits import GROUP_ROWS, GROUP_STATEMENTS, POISON_DEATHS
from noria.core.statements import Insert, Statement, WriteResult
from noria.dataflow.messages.packets import Recipients
from noria.runtime.link.change_queue import WorkerLost, WorkerUnavailable
from noria.runtime.routing.write_routing import RoutedWrite
from noria.runtime.transactions.two_phase_commit import Outcome, TwoPhaseCommits


class GroupOutcome(NamedTuple):
    """The outcome of a statement. `results`: by ascending worker. `sent`: for each worker, the
    messages that its tick sent to other workers."""

    results: list[WriteResult]
    sent: dict[int, Recipients]


@dataclass(eq=False)
class _GroupStatement:
    """A waiting statement. `must_run_alone`: it had an error in a group, or may have ended a worker. `places`: its
    position among each worker's statements in the group under way."""

    parts: Mapping[int, Statement]
    done: asyncio.Future[GroupOutcome]
    must_run_alone: bool = False
    cancelled: bool = False
    deaths: int = 0
    places: dict[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(len(s.rows) if isinstance(s, Insert) else 1 for s in self.parts.values())

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Running(NamedTuple):
    batch: list[_GroupStatement]
    group: asyncio.Task[Outcome]
    sent: dict[int, Recipients]


class GroupCommits:
    """The statements that wait for a group, and the groups under way."""

    def __init__(self, groups: TwoPhaseCommits, workers: int):
        self._groups, self._workers = groups, workers
        self._waiting: list[_GroupStatement] = []
        self._running: dict[asyncio.Task[None], _Running] = {}
        self._soon = False
        self._awaited_workers: dict[frozenset[int], asyncio.Task[None]] = {}  # done when all of these workers serve

    @staticmethod
    def accepts(routed: RoutedWrite) -> bool:
        """Whether the statement is known to be short, and may share a group."""
        return len(routed.parts) > 1 and routed.few and not (routed.moves or routed.unique)

    def add(self, parts: Mapping[int, Statement]) -> asyncio.Future[GroupOutcome]:
        """Queue a statement. If the future is cancelled before the statement begins, it is not done."""
        one = _GroupStatement(parts, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._schedule()
        return one.done

    def give_up(self, done: asyncio.Future[GroupOutcome]) -> bool:
        """Cancel a statement if it is undecided; within a larger group it runs on. Returns whether the statement is
        queued or running here."""
        for one in self._waiting:
            if one.done is done:
                self._waiting.remove(one)
                done.cancel()
                return True
        for running in self._running.values():
            for one in running.batch:
                if one.done is done:
                    one.cancelled = True
                    if len(running.batch) == 1:
                        self._groups.give_up(running.group)
                    return True
        return False

    # ------------------------------------------------------------ batches
    def _schedule(self) -> None:
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._begin_groups)

    def _begin_groups(self) -> None:
        """Begin the groups that may begin."""
        self._soon = False
        batch = self._together()
        if batch:
            chosen = set(batch)
            self._waiting = [one for one in self._waiting if one not in chosen]
            sent: dict[int, Recipients] = {}
            running = _Running(batch, self._groups.begin(parts_of(batch), sent=sent), sent)
            task = asyncio.ensure_future(self._run(running))
            self._running[task] = running
            task.add_done_callback(self._ended)

    def _together(self) -> list[_GroupStatement]:
        """The next statements whose workers are up and in no other of these groups."""
        busy = {w for running in self._running.values() for one in running.batch for w in one.parts}
        batch: list[_GroupStatement] = []
        rows = 0
        for one in self._waiting:
            if len(busy) == self._workers:
                break
            if not self._groups.all_up(one.parts):
                self._wait_for(frozenset(one.parts))
            elif busy.isdisjoint(one.parts) and _fits(one, batch, rows):
                batch.append(one)
                rows += one.rows
            else:
                busy |= one.parts.keys()
        return batch

    def _wait_for(self, workers: frozenset[int]) -> None:
        if workers not in self._awaited_workers:
            self._awaited_workers[workers] = task = asyncio.ensure_future(self._groups.wait_until_up(workers))
            task.add_done_callback(lambda _: self._workers_up(workers))

    def _workers_up(self, workers: frozenset[int]) -> None:
        if not self._awaited_workers.pop(workers).cancelled():
            self._schedule()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if task.cancelled():  # the front end is stopping
            for one in self._waiting:
                one.done.cancel()
        else:
            self._begin_groups()

    # ------------------------------------------------------------ a group
    async def _run(self, running: _Running) -> None:
        batch = running.batch
        try:
            outcome = await running.group
        except WorkerLost as e:
            self._again(batch, e.deaths)
        except asyncio.CancelledError:
            for one in batch:
                one.done.cancel()
            raise
        except Exception as e:
            for one in batch:
                one.fail(e)
        else:
            self._outcome(batch, outcome, running.sent)

    def _outcome(self, batch: Sequence[_GroupStatement], outcome: Outcome, sent: Mapping[int, Recipients]) -> None:
        if outcome.done or len(batch) == 1:
            for one in batch:
                if not one.done.done():
                    mine = {w: t for w, t in sent.items() if w in one.parts}
                    one.done.set_result(GroupOutcome(outcome.of(one.places), mine))
            return
        wrong = {one for one in batch if any(r.error is not None for r in outcome.of(one.places))} or set(batch)
        for one in wrong:
            one.must_run_alone = True
        self._again([*(one for one in batch if one not in wrong), *(one for one in batch if one in wrong)], 0)

    def _again(self, batch: Sequence[_GroupStatement], deaths: int) -> None:
        """Queue the statements again, except the cancelled ones."""
        for one in batch:
            one.deaths += deaths if len(batch) == 1 else 0
            one.must_run_alone |= deaths > 0
            if one.cancelled:
                one.done.cancel()
            elif one.deaths >= POISON_DEATHS:
                one.fail(too_many_deaths(one.deaths))
        self._waiting[:0] = [one for one in batch if not one.done.done()]


def _fits(one: _GroupStatement, batch: Sequence[_GroupStatement], rows: int) -> bool:
    """Whether the statement may join these, which have `rows` rows."""
    if not batch:
        return True
    if one.must_run_alone or batch[0].must_run_alone:
        return False
    return len(batch) < GROUP_STATEMENTS and rows + one.rows <= GROUP_ROWS


class GroupMember(Protocol):
    """One of several statements of a group. `places`: its position among each worker's statements."""

    @property
    def parts(self) -> Mapping[int, Statement]: ...

    @property
    def places(self) -> dict[int, int]: ...


def parts_of(batch: Iterable[GroupMember]) -> dict[int, tuple[Statement, ...]]:
    """The statements of each worker; sets the `places` of each part."""
    parts: dict[int, list[Statement]] = {}
    for one in batch:
        one.places.clear()
        for w, statement in one.parts.items():
            some = parts.setdefault(w, [])
            one.places[w] = len(some)
            some.append(statement)
    return {w: tuple(some) for w, some in parts.items()}


def too_many_deaths(deaths: int) -> WorkerUnavailable:
    return WorkerUnavailable(f"workers ended {deaths} times while they applied this change, so it is given up: nothing "
                             "of it is done")
