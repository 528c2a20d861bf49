"""Two-phase commit of statements over several shards: at all workers concerned or at none (design/decisions.md, 7).
Call `TwoPhaseCommits.begin`. The coordinator is a worker; `ClientTransactions` is the front end's part.

    Prepare at all but the coordinator → Write at the coordinator: the decision → Decide at the others

The coordinator is the participant with the least number. A group reserves its places in the queues of all its
workers at once, and later changes wait there until it is decided. So no lock is needed, and no two groups wait
for each other.

Keeps true: nothing is acknowledged before the decision is durable. A prepared part follows the coordinator's
decision, whatever process died meanwhile, even the front end. If a participant is lost before it has prepared, or
the coordinator before the decision was sent to it, the group is aborted (`WorkerLost`). So nothing waits for it.
If the coordinator is lost later, its Write is sent again under the same number, and its store answers what it did.
If all processes start anew, the coordinator's Hello reports the decision. Until then, the participants hold back
writes of the group's tables.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from noria.core.errors import SqlError
from noria.core.errors.codes import CRASHED_ON_USAGE
from noria.core.statements import Statement, WriteResult, tables_written
from noria.dataflow.messages.packets import Decide, Hello, Packet, Prepare, Recipients, Write, Wrote
from noria.runtime.link.change_queue import Change, WorkerLost
from noria.runtime.link.commit_order import CommitOrder, Scope
from noria.runtime.link.link import LinkState

log = logging.getLogger(__name__)
AGAIN_S = 1.0  # between tries of a commit that a full disk prevents
_DAMAGED = CRASHED_ON_USAGE.number  # a file that cannot be read: no other try helps


class ParticipantLink(Protocol):
    """The operations of one worker's link that a group needs."""

    hello: Hello | None
    state: LinkState

    @property
    def prepared_group(self) -> str: ...

    def gate(self, group: str) -> None: ...

    def release(self, group: str) -> None: ...

    def pass_by(self, group: str) -> None: ...

    def submit(self, body: Change) -> asyncio.Future[Any]: ...

    def reserve_place(self, group: str) -> asyncio.Future[Any]: ...

    def fill_place(self, group: str, body: Change) -> asyncio.Future[Any]: ...

    def release_place(self, group: str) -> None: ...

    def cancel(self, change: asyncio.Future[Any]) -> None: ...

    def withdraw(self, change: asyncio.Future[Any], sent: bool) -> None: ...

    async def up(self) -> None: ...

    async def first(self, body: Change) -> Any: ...


class PlanningLink(ParticipantLink, Protocol):
    """A `ParticipantLink` that also answers questions, for statements that are planned first."""

    async def ask(self, body: Packet, retry: bool = False) -> Any: ...


class Outcome(NamedTuple):
    """The outcome of a group. `done`: whether it was committed. `results`: of each worker that answered, the
    results of its statements. If it is not done and one has an error, no statement took effect."""

    done: bool
    results: Mapping[int, Sequence[WriteResult]]

    def all(self) -> list[WriteResult]:
        """All results, by ascending worker."""
        return [r for w in sorted(self.results) for r in self.results[w]]

    def of(self, places: Mapping[int, int]) -> list[WriteResult]:
        """The results of one statement, by ascending worker. `places`: its position among each worker's
        statements."""
        return [_at(self.results[w], places[w]) for w in sorted(places) if w in self.results]


class _Group(NamedTuple):
    """A group under way. `patient`: it waits for lost workers."""

    name: str
    first: int
    decision: asyncio.Future[Any]
    prepares: dict[int, asyncio.Future[Any]]
    patient: bool


class TwoPhaseCommits:
    """All groups of a front end. `epoch`: of the front end; it makes the names of groups unique. `order`: receives each
    group whose coordinator may commit it."""

    def __init__(self, links: Sequence[ParticipantLink], epoch: int, order: CommitOrder):
        self._links, self._epoch, self._order = links, epoch, order
        self._numbers = itertools.count(1)
        self._running: dict[asyncio.Task[Outcome], _Group] = {}
        self._committed: set[str] = set()  # decided, and not yet known to be done by all
        self._done: dict[int, list[str]] = {}  # by coordinator: decisions that nobody needs any more
        self._resolved: dict[tuple[str, int], Sequence[WriteResult]] = {}  # of running groups: done as workers came up

    def __bool__(self) -> bool:
        return bool(self._running)

    # ------------------------------------------------------------ a statement
    def name(self) -> str:
        return f"{self._epoch}.{next(self._numbers)}"

    def all_up(self, workers: Iterable[int]) -> bool:
        return all(self._links[w].state is LinkState.UP for w in workers)

    async def wait_until_up(self, workers: Iterable[int]) -> None:
        """Wait until all of these workers serve."""
        some = tuple(workers)
        while not self.all_up(some):
            for w in some:
                await self._links[w].up()

    def begin(self, parts: Mapping[int, tuple[Statement, ...]], reserved: str = "",
              sent: dict[int, Recipients] | None = None, patient: bool = False, idempotency_key: str = ""
              ) -> asyncio.Task[Outcome]:
        """Begin a group. Its task raises `WorkerLost` if a worker is lost before the decision, unless it is `patient`.

        `reserved`: the name of places already reserved for it in the workers' queues. `sent`: receives, for each
        worker, the messages that its tick sent. `idempotency_key`: a name to remember with the decision.
        """
        name = reserved or self.name()
        first, *others = sorted(parts)

        def submit(w: int, body: Change) -> asyncio.Future[Any]:
            return self._links[w].fill_place(name, body) if reserved else self._links[w].submit(body)

        self._links[first].gate(name)
        write = Write(tuple(parts[first]), name, tuple(self._done.pop(first, ())), idempotency_key)
        decision = submit(first, write)
        prepares = {w: submit(w, Prepare(tuple(parts[w]), name, first)) for w in others}
        scope = Scope(parts.keys(), {t for some in parts.values() for s in some for t in tables_written(s)})
        task = asyncio.ensure_future(self._run(write, first, decision, prepares, {} if sent is None else sent, scope))
        self._running[task] = _Group(name, first, decision, prepares, patient)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Outcome]) -> None:
        name = self._running.pop(task).name
        self._resolved = {at: result for at, result in self._resolved.items() if at[0] != name}
        if not task.cancelled():
            task.exception()  # retrieved, in case nobody awaits the task

    def give_up(self, task: asyncio.Task[Any]) -> None:
        """Abort a group, unless it is decided."""
        if (group := self._running.get(task)) is not None:
            for w, prepare in group.prepares.items():
                if not prepare.done():
                    self._links[w].cancel(prepare)

    def lost(self, worker: int) -> None:
        """Handle the loss of a worker: groups that need it and are undecided are not done."""
        for group in self._running.values():
            if worker in group.prepares and not group.patient:
                self._links[worker].withdraw(group.prepares[worker], True)
            elif worker == group.first and not group.patient:
                self._links[worker].withdraw(group.decision, False)
            if worker == group.first and not group.decision.done():  # only its next life reports whether it committed
                for w in group.prepares:
                    self._links[w].pass_by(group.name)

    async def _run(self, write: Write, first: int, decision: asyncio.Future[Any],
                   prepares: dict[int, asyncio.Future[Any]], sent: dict[int, Recipients], scope: Scope) -> Outcome:
        name = write.group
        replies = dict(zip(prepares, await asyncio.gather(*prepares.values(), return_exceptions=True), strict=True))
        prepared = [w for w, r in replies.items() if isinstance(r, Wrote) and _error(r.results) is None]
        if len(prepared) < len(replies):
            self._links[first].cancel(decision)
            self._links[first].release(name)
            self._done.setdefault(first, []).extend(write.forget)
            await self._send_decision(name, prepared, False)
            return _failures(replies)
        self._links[first].release(name)
        if (task := asyncio.current_task()) is not None:
            self._order.begins(task, scope)
        try:
            wrote: Wrote = await decision
        except WorkerLost:
            self._done.setdefault(first, []).extend(write.forget)
            await self._send_decision(name, prepared, False)
            raise
        except Exception as e:
            if await self._has_committed(first, name):
                await self._send_decision(name, prepared, True)
            else:
                await self._send_decision(name, prepared, False)
            raise e
        if _error(wrote.results) is not None:
            await self._send_decision(name, prepared, False)
            return Outcome(False, {first: wrote.results})
        self._committed.add(name)
        sent[first] = wrote.recipients
        decided = await self._send_decision(name, prepared, True, sent)
        if not any(_error(results) for results in decided.values()):  # otherwise a restarting worker requests it
            self._committed.discard(name)
            self._done.setdefault(first, []).append(name)
        return Outcome(True, {first: wrote.results, **decided})

    async def _send_decision(self, name: str, workers: Sequence[int], commit: bool,
                             sent: dict[int, Recipients] | None = None) -> dict[int, Sequence[WriteResult]]:
        """Send the decision to these workers. If a worker's disk is full, send it again each second until it commits.
        A part that a damaged file prevents stays prepared; the worker's next start tries it again."""
        async def one(w: int) -> Sequence[WriteResult]:
            logged = False
            while (name, w) not in self._resolved:
                reply: Wrote = await self._links[w].submit(Decide(name, commit))
                if (name, w) in self._resolved:
                    break
                if (error := _error(reply.results)) is None:
                    if sent is not None:
                        sent[w] = reply.recipients
                    return reply.results
                if error.code == _DAMAGED:
                    self._links[w].release(name)  # only its own table stays locked
                    return [WriteResult(error=_unfinished(w, error)) for _ in reply.results]
                if not logged:
                    log.warning("worker %d cannot commit what is decided, which is tried each second: %s", w, error)
                    logged = True
                await asyncio.sleep(AGAIN_S)
            if sent is not None:
                sent[w] = None  # it did so before it had its graph (`InFlightPacket.early`)
            return self._resolved[name, w]

        return dict(zip(workers, await asyncio.gather(*map(one, workers)), strict=True))

    async def _has_committed(self, first: int, name: str) -> bool:
        """Whether the coordinator committed, according to the Hello of its next life."""
        await self._links[first].up()
        hello = self._links[first].hello
        return hello is not None and name in hello.decided

    # ------------------------------------------------------------ after a crash
    async def resolve(self, hello: Hello, decided: Callable[[int], Sequence[str]]) -> None:
        """Within the worker's `on_hello`: decide its prepared groups that no task handles.

        `decided` returns the groups that a coordinator has committed, according to its Hello. Of a worker that starts
        alone, it returns none: `_committed` has these groups. SqlError if a decision fails now; then the worker
        cannot serve.
        """
        for name, coordinator in hello.prepared:
            if self._links[hello.worker].prepared_group != name and (name, hello.worker) not in self._resolved:
                await self._resolve_at(hello.worker, name, name in self._committed or name in decided(coordinator))

    async def resolve_running(self, hellos: Sequence[Hello]) -> None:
        """Within the `on_hello` of all workers, of which none serves: decide the prepared groups under way.

        They cannot wait for their coordinator to serve: it waits until all workers have one catalog, and a worker
        with a prepared group accepts no change. A group is committed if its coordinator has committed it,
        otherwise aborted.
        """
        for group in tuple(self._running.values()):
            prepared = [w for w in group.prepares if group.name in dict(hellos[w].prepared)]
            if not prepared or group.patient:  # no change of the catalog runs beside a patient group
                continue
            commit = group.name in hellos[group.first].decided or _committed(group.decision)
            if not commit:
                self._links[group.first].withdraw(group.decision, True)
            for w in prepared:
                await self._resolve_at(w, group.name, commit)

    async def _resolve_at(self, worker: int, name: str, commit: bool) -> None:
        """Decide one prepared group at one worker. SqlError if the worker cannot do it now."""
        link = self._links[worker]
        reply: Wrote = await link.first(Decide(name, commit))
        error = _error(reply.results)
        link.release(name)  # otherwise nobody would decide it in the worker's next life
        if error is not None and error.code != _DAMAGED:
            raise error
        if error is not None:
            if commit:
                self._committed.add(name)  # the worker requests it again when it restarts alone
            log.warning("worker %d still cannot do what was decided: %s", worker, error)
        elif reply.results and any(g.name == name for g in self._running.values()):  # else it was done before this
            self._resolved[name, worker] = reply.results


def _committed(decision: asyncio.Future[Any]) -> bool:
    """Whether the coordinator has answered that it committed."""
    if not decision.done() or decision.cancelled() or decision.exception() is not None:
        return False
    wrote: Wrote = decision.result()
    return _error(wrote.results) is None


def _error(results: Sequence[WriteResult]) -> SqlError | None:
    return next((r.error for r in results if r.error is not None), None)


def _unfinished(worker: int, error: SqlError) -> SqlError:
    return SqlError(error.code, error.state, f"{error.message}. The statement is done at other workers; worker "
                                             f"{worker} does its part when it starts again and can read the file "
                                             "(noria check)")


def _at(results: Sequence[WriteResult], place: int) -> WriteResult:
    """The result at a position. If there is none, the group's error."""
    if place < len(results):
        return results[place]
    return WriteResult(error=_error(results))


def _failures(replies: Mapping[int, Any]) -> Outcome:
    """The outcome with the workers' errors; raises the failure of a worker that did not answer if there are none."""
    errors = {w: r.results for w, r in replies.items() if isinstance(r, Wrote) and _error(r.results) is not None}
    if not errors:
        raise next(r for r in replies.values() if isinstance(r, BaseException))
    return Outcome(False, errors)
