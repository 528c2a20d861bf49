"""Statements over several shards: whole at all workers concerned, or at none (DESIGN section 7).

    Prepare at all but the coordinator → Write at the coordinator: the decision → Decide at the others

The coordinator is the participant with the least number.  A group has its place in the queues of all its workers at
once, and what stands behind it waits until it is decided there: so nothing needs a lock, and no two wait for each
other.

Keeps true: nobody is told before the decision is durable; what was prepared is decided as the coordinator has it,
whoever died meanwhile, the front end too.  When a worker is lost, what is not decided and needs it is given up at the
others (`Lost`), so that nothing waits behind it there; only while the decision is on its way to the lost one, writes of
the same tables wait.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from noria.core.errors import SqlError
from noria.core.statements import Statement, WriteResult
from noria.dataflow.messages.packets import Decide, Hello, Packet, Prepare, Told, Write, Wrote
from noria.runtime.link.changes import Change, Lost
from noria.runtime.link.link import LinkState

log = logging.getLogger(__name__)
AGAIN_S = 1.0  # between two tries of what a full disk keeps from being committed
_DAMAGED = 1194  # a file that cannot be read: no other try helps


class Participant(Protocol):
    """What a group needs of one worker's link."""

    hello: Hello | None
    state: LinkState

    @property
    def held(self) -> str: ...

    def gate(self, group: str) -> None: ...

    def release(self, group: str) -> None: ...

    def pass_by(self, group: str) -> None: ...

    def submit(self, body: Change) -> asyncio.Future[Any]: ...

    def hold(self, group: str) -> asyncio.Future[Any]: ...

    def put(self, group: str, body: Change) -> asyncio.Future[Any]: ...

    def let_go(self, group: str) -> None: ...

    def cancel(self, change: asyncio.Future[Any]) -> None: ...

    def withdraw(self, change: asyncio.Future[Any], sent: bool) -> None: ...

    async def up(self) -> None: ...

    async def first(self, body: Change) -> Any: ...


class Asked(Participant, Protocol):
    """What more is needed where a statement is planned first."""

    async def ask(self, body: Packet, retry: bool = False) -> Any: ...


class Outcome(NamedTuple):
    """What became of a group.  done: was it decided to be done?  results: of each worker that told, what each of its
    statements did; where one has an error and it is not done, none did anything."""

    done: bool
    results: Mapping[int, Sequence[WriteResult]]

    def all(self) -> list[WriteResult]:
        """By ascending worker."""
        return [r for w in sorted(self.results) for r in self.results[w]]

    def of(self, places: Mapping[int, int]) -> list[WriteResult]:
        """Of one statement, by ascending worker; places: which of each worker's statements it is."""
        return [_at(self.results[w], places[w]) for w in sorted(places) if w in self.results]


class _Group(NamedTuple):
    """patient: it waits for workers that are lost."""

    name: str
    first: int
    decision: asyncio.Future[Any]
    prepares: dict[int, asyncio.Future[Any]]
    patient: bool


class Groups:
    """epoch: of the front end; names of groups are unique with it."""

    def __init__(self, links: Sequence[Participant], epoch: int):
        self._links, self._epoch = links, epoch
        self._numbers = itertools.count(1)
        self._running: dict[asyncio.Task[Outcome], _Group] = {}
        self._committed: set[str] = set()  # decided, and not yet known to be done by all
        self._done: dict[int, list[str]] = {}  # by coordinator: decisions that nobody will ask for any more
        self._settled: dict[tuple[str, int], Sequence[WriteResult]] = {}  # of running groups: done as workers came up

    def __bool__(self) -> bool:
        return bool(self._running)

    # ------------------------------------------------------------ a statement
    def name(self) -> str:
        return f"{self._epoch}.{next(self._numbers)}"

    def are_there(self, workers: Iterable[int]) -> bool:
        return all(self._links[w].state is LinkState.UP for w in workers)

    async def there(self, workers: Iterable[int]) -> None:
        """When all of these serve."""
        some = tuple(workers)
        while not self.are_there(some):
            for w in some:
                await self._links[w].up()

    def begin(self, parts: Mapping[int, tuple[Statement, ...]], held: str = "", told: dict[int, Told] | None = None,
              patient: bool = False, once: str = "") -> asyncio.Task[Outcome]:
        """held: the name under which all these workers have a place in their queues for it.  told: gets whom each
        worker has told of what was done.  Raises `Lost`, or patient: waits for whoever is lost.  once: remembered with
        the decision."""
        name = held or self.name()
        first, *others = sorted(parts)

        def submit(w: int, body: Change) -> asyncio.Future[Any]:
            return self._links[w].put(name, body) if held else self._links[w].submit(body)

        self._links[first].gate(name)
        write = Write(tuple(parts[first]), name, tuple(self._done.pop(first, ())), once)
        decision = submit(first, write)
        prepares = {w: submit(w, Prepare(tuple(parts[w]), name, first)) for w in others}
        task = asyncio.ensure_future(self._run(write, first, decision, prepares, {} if told is None else told))
        self._running[task] = _Group(name, first, decision, prepares, patient)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Outcome]) -> None:
        name = self._running.pop(task).name
        self._settled = {at: result for at, result in self._settled.items() if at[0] != name}
        if not task.cancelled():
            task.exception()  # looked at: whoever began it may be gone

    def give_up(self, task: asyncio.Task[Any]) -> None:
        """As far as it has not been decided."""
        if (group := self._running.get(task)) is not None:
            for w, prepare in group.prepares.items():
                if not prepare.done():
                    self._links[w].cancel(prepare)

    def lost(self, worker: int) -> None:
        """It is not there any more: what is not decided without it is not done."""
        for group in self._running.values():
            if worker in group.prepares and not group.patient:
                self._links[worker].withdraw(group.prepares[worker], True)
            elif worker == group.first and not group.patient:
                self._links[worker].withdraw(group.decision, False)
            if worker == group.first and not group.decision.done():  # it may have committed; only its next life tells
                for w in group.prepares:
                    self._links[w].pass_by(group.name)

    async def _run(self, write: Write, first: int, decision: asyncio.Future[Any],
                   prepares: dict[int, asyncio.Future[Any]], told: dict[int, Told]) -> Outcome:
        name = write.group
        replies = dict(zip(prepares, await asyncio.gather(*prepares.values(), return_exceptions=True), strict=True))
        prepared = [w for w, r in replies.items() if isinstance(r, Wrote) and _error(r.results) is None]
        if len(prepared) < len(replies):
            self._links[first].cancel(decision)
            self._links[first].release(name)
            self._done.setdefault(first, []).extend(write.forget)
            await self._decide(name, prepared, False)
            return _failures(replies)
        self._links[first].release(name)
        try:
            wrote: Wrote = await decision
        except Lost:
            self._done.setdefault(first, []).extend(write.forget)
            await self._decide(name, prepared, False)
            raise
        except Exception as e:
            if await self._found_out(first, name):
                await self._decide(name, prepared, True)
            else:
                await self._decide(name, prepared, False)
            raise e
        if _error(wrote.results) is not None:
            await self._decide(name, prepared, False)
            return Outcome(False, {first: wrote.results})
        self._committed.add(name)
        told[first] = wrote.told
        decided = await self._decide(name, prepared, True, told)
        if not any(_error(results) for results in decided.values()):  # else: who starts again asks for it
            self._committed.discard(name)
            self._done.setdefault(first, []).append(name)
        return Outcome(True, {first: wrote.results, **decided})

    async def _decide(self, name: str, workers: Sequence[int], commit: bool, told: dict[int, Told] | None = None
                      ) -> dict[int, Sequence[WriteResult]]:
        """At all of these; one that finds its disk full is asked until it does not.  What a damaged file keeps from
        being done stays prepared there: the worker's next start tries it again."""
        async def one(w: int) -> Sequence[WriteResult]:
            said = False
            while (name, w) not in self._settled:
                reply: Wrote = await self._links[w].submit(Decide(name, commit))
                if (name, w) in self._settled:
                    break
                if (error := _error(reply.results)) is None:
                    if told is not None:
                        told[w] = reply.told
                    return reply.results
                if error.code == _DAMAGED:
                    self._links[w].release(name)  # it keeps its table, and no other
                    return [WriteResult(error=_unfinished(w, error)) for _ in reply.results]
                if not said:
                    log.warning("worker %d cannot commit what is decided, which is tried each second: %s", w, error)
                    said = True
                await asyncio.sleep(AGAIN_S)
            if told is not None:
                told[w] = None  # it did so before it had its graph (`Flight.early`)
            return self._settled[name, w]

        return dict(zip(workers, await asyncio.gather(*map(one, workers)), strict=True))

    async def _found_out(self, first: int, name: str) -> bool:
        """Did the coordinator commit?  Nobody could tell; its next life does."""
        await self._links[first].up()
        hello = self._links[first].hello
        return hello is not None and name in hello.decided

    # ------------------------------------------------------------ after a crash
    async def resolve(self, hello: Hello, decided: Callable[[int], Sequence[str]]) -> None:
        """Within the worker's `on_hello`: what it has prepared and nobody is at any more is decided.  decided: which
        groups a coordinator has committed.  SqlError: it cannot be done now, and the worker cannot serve."""
        for name, coordinator in hello.prepared:
            if self._links[hello.worker].held != name and (name, hello.worker) not in self._settled:
                await self._settle(hello.worker, name, name in self._committed or name in decided(coordinator))

    async def settle(self, hellos: Sequence[Hello]) -> None:
        """Within the `on_hello` of all workers, of which none serves: what is under way and prepared does not wait for
        its coordinator to serve, as that waits for all to have one catalog, and who has something prepared takes no
        change in.  It is done if the coordinator has committed it, else given up."""
        for group in tuple(self._running.values()):
            there = [w for w in group.prepares if group.name in dict(hellos[w].prepared)]
            if not there or group.patient:  # none changes the catalog beside what is patient
                continue
            commit = group.name in hellos[group.first].decided or _committed(group.decision)
            if not commit:
                self._links[group.first].withdraw(group.decision, True)
            for w in there:
                await self._settle(w, group.name, commit)

    async def _settle(self, worker: int, name: str, commit: bool) -> None:
        """SqlError: the worker cannot do it now."""
        link = self._links[worker]
        reply: Wrote = await link.first(Decide(name, commit))
        error = _error(reply.results)
        link.release(name)  # or nobody would decide it in the worker's next life
        if error is not None and error.code != _DAMAGED:
            raise error
        if error is not None:
            log.warning("worker %d still cannot do what was decided: %s", worker, error)
        elif reply.results and any(g.name == name for g in self._running.values()):  # else it was done before this
            self._settled[name, worker] = reply.results


def _committed(decision: asyncio.Future[Any]) -> bool:
    """Has the coordinator told that it did its part?"""
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
    """An error that is not one statement's is all others'."""
    if place < len(results):
        return results[place]
    return WriteResult(error=_error(results))


def _failures(replies: Mapping[int, Any]) -> Outcome:
    """Errors that workers told, else what kept one from answering."""
    told = {w: r.results for w, r in replies.items() if isinstance(r, Wrote) and _error(r.results) is not None}
    if not told:
        raise next(r for r in replies.values() if isinstance(r, BaseException))
    return Outcome(False, told)
