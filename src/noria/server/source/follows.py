"""Tables that follow another database (`noria follow`): their changes are applied in order, each once.

A follower is a process of its own.  Its *record* here names the source, the start and the tables.  It sends the net
changes of some transactions, and the *position* in the source's binlog behind them, a number that grows.  The commit of
the rows also stores the position (`packets.Write.idempotency_key`).  So a restarted follower continues behind the last
commit, and a repeated request does nothing.  The store has the record and the position as names:

    follow:{record}        followed:NAME/POSITION

Keeps true: a follower has one request running at a time, and only its last run may send one.  Nobody else writes its
tables, from before they are created until it is released.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from noria.core.errors import SqlError, table_exists, unknown_table
from noria.core.errors.codes import READ_ONLY_MODE, TABLE_EXISTS, UNKNOWN_ERROR
from noria.core.limits import FOLLOW_FORGET, FOLLOW_LOST_S, FOLLOWS
from noria.core.statements import Delete, Insert
from noria.dataflow.messages.packets import Inspect, Write
from noria.runtime.link.link import Link
from noria.server.answering.executor import Executor
from noria.server.answering.followed_tables import STOPPED, WAITING, FollowerStatus, written_by
from noria.server.source.writes import FOLLOW, ONCE, StagedWrites, most_rows

RECORD, POSITION = "follow:", "followed:"
Run = Callable[[str], Awaitable[object]]  # a statement of SQL
log = logging.getLogger("noria")


@dataclass
class _Follow:
    """One follower.  kept: the record's name in the store.  at: the position.  unsure: the store may have a commit
    that failed.  passed: the names of earlier positions."""

    record: dict[str, Any]
    kept: str
    at: int = 0
    passed: list[str] = field(default_factory=list)
    run: str = ""
    unsure: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    watch: asyncio.TimerHandle | None = None  # checks whether the follower is lost; None: no check is due


class Followers:
    """The followers of this server (see the module).  run: runs a statement of SQL."""

    def __init__(self, executor: Executor, link: Link, writes: StagedWrites, run: Run):
        self._executor, self._link, self._writes, self._run = executor, link, writes, run
        self._followed = executor.locks.followed
        self._follows: dict[str, _Follow] = {}

    async def recover(self) -> None:
        """Read the followers from the store.  Call this before any client is served."""
        for record in await records(self._executor):
            self._follows[record["name"]] = _Follow(record, _kept(record))
        for name, follow in self._follows.items():
            await self._find(name, follow)

    async def _names(self, prefix: str) -> list[str]:
        found: list[str] = await self._executor.ask(Inspect(0, "remembered names", prefix))
        return found

    async def _find(self, name: str, follow: _Follow) -> None:
        """Read the follower's position from the store."""
        found = await self._names(f"{POSITION}{name}/")
        follow.at = max((_number(n) for n in found), default=0)
        follow.passed = [n for n in found if _number(n) != follow.at]
        follow.unsure = False

    # ------------------------------------------------------------ begin and end
    def all(self) -> list[dict[str, Any]]:
        return [{"record": f.record, "at": f.at} for f in self._follows.values()]

    async def begin(self, name: str, run: str, record: dict[str, Any] | None) -> dict[str, Any]:
        """Begin a follower's run, which ends any earlier run of this name.  Return its record and position.  record:
        creates the follower if it does not exist; None: return no record then."""
        follow = self._follows.get(name)
        if follow is None:
            if record is None:
                return {"record": None, "at": 0}
            follow = await self._made(name, record)
        with self._request_of(name):
            async with follow.turn:
                follow.run = run
                if follow.unsure:
                    await self._find(name, follow)
                log.info("following %s: a follower began behind position %s", follow.record["source"], follow.at)
                return {"record": follow.record, "at": follow.at}

    async def _made(self, name: str, record: dict[str, Any]) -> _Follow:
        if len(self._follows) >= FOLLOWS:
            raise SqlError(*UNKNOWN_ERROR, f"{FOLLOWS} databases are followed already: end one with `noria follow … "
                                           "--release`")
        self._check_new(record["tables"])
        follow = self._follows[name] = _Follow(record, _kept(record))
        self._followed.follow(name, record["source"], record["tables"])
        try:
            await self._link.change(Write((), idempotency_key=follow.kept))
        except BaseException:
            self._followed.release(name)
            del self._follows[name]
            raise
        return follow

    def _check_new(self, tables: Iterable[str]) -> None:
        """Raise SqlError if one of these tables exists or is followed already."""
        program = self._executor.program
        for table in tables:
            if program.table(table) is not None or program.view(table) is not None:
                raise table_exists(table)
            if table.lower() in self._followed.tables:
                raise SqlError(*TABLE_EXISTS, f"Table '{table}' follows another database already")

    async def note(self, name: str, run: str, record: dict[str, Any]) -> None:
        """Replace the follower's record."""
        follow = self._of(name, run)
        with self._request_of(name):
            await self._noted(name, follow, record)

    async def _noted(self, name: str, follow: _Follow, record: dict[str, Any]) -> None:
        async with follow.turn:
            self._check_new(t for t in record["tables"] if t not in follow.record["tables"])
            record = {**record, "n": int(follow.record["n"]) + 1}
            before, kept = follow.kept, _kept(record)
            await self._link.change(Write((), idempotency_key=kept, forget=(before,)))
            follow.record, follow.kept = record, kept
            self._followed.follow(name, record["source"], record["tables"])

    async def release(self, name: str) -> None:
        """Forget the follower.  Its tables become ordinary ones."""
        follow = self._follows.get(name)
        if follow is None:
            raise SqlError(*UNKNOWN_ERROR, "nothing here follows that database; SHOW NORIA FOLLOWING has what does")
        async with follow.turn:
            gone = [k for k in await self._names(RECORD) if _record(k)["name"] == name]
            gone += [*await self._names(f"{POSITION}{name}/"), *await self._names(f"{ONCE}{FOLLOW}.{name}.")]
            await self._link.change(Write((), forget=tuple(gone)))
            follow.run = ""
            if follow.watch is not None:
                follow.watch.cancel()
            log.info("following %s ended: its tables are ordinary ones", follow.record["source"])
            self._followed.release(name)
            self._follows.pop(name, None)

    def _of(self, name: str, run: str) -> _Follow:
        follow = self._follows.get(name)
        if follow is None or follow.run != run:
            raise SqlError(*READ_ONLY_MODE, "this run of the follower is over: the server was started again, "
                                            "another `noria follow` of the same database began, or it was released")
        return follow

    # ------------------------------------------------------------ changes
    async def run(self, name: str, run: str, statement: str) -> None:
        """Run a statement on a followed table (CREATE, TRUNCATE) as its follower."""
        follow = self._of(name, run)
        with self._request_of(name), written_by(name):
            async with follow.turn:
                await self._run(statement)

    async def apply(self, name: str, run: str, position: int, changes: Sequence[tuple[str, str, pa.Table]]) -> bool:
        """Apply changes, (table, "delete" or "replace", rows) one after the other, and store the position.

        Position 0: the transaction continues in the next request.  Returns False if they were applied before.
        """
        follow = self._of(name, run)
        with self._request_of(name):
            return await self._in_turn(name, run, follow, position, changes)

    async def _in_turn(self, name: str, run: str, follow: _Follow, position: int,
                       changes: Sequence[tuple[str, str, pa.Table]]) -> bool:
        async with follow.turn:
            self._of(name, run)
            if follow.unsure:
                await self._find(name, follow)
            if position and position <= follow.at:
                return False
            statements = [s for change in changes for s in self._statements(*change)]
            idempotency_key = f"{POSITION}{name}/{position}"  # also for 0: a name makes the statements all or nothing
            await self._committed(follow, statements, idempotency_key)
            if len(follow.passed) >= FOLLOW_FORGET:
                await self._link.change(Write((), forget=tuple(follow.passed)))
                follow.passed = []
            if position:
                follow.passed.append(f"{POSITION}{name}/{follow.at}")
                follow.at = position
        return True

    def _statements(self, table: str, on: str, rows: pa.Table) -> list[Insert | Delete]:
        definition = self._executor.program.table(table)
        if definition is None:
            raise unknown_table(table)
        return [self._writes.statement(definition, batch, on)
                for batch in rows.combine_chunks().to_batches(max_chunksize=most_rows(definition, on))]

    async def _committed(self, follow: _Follow, statements: Sequence[Insert | Delete], idempotency_key: str) -> None:
        if not statements:
            follow.unsure = True
            await self._link.change(Write((), idempotency_key=idempotency_key))
            follow.unsure = False
            return
        done = self._executor.submit_together(statements, idempotency_key)
        try:
            await asyncio.wait((done,))
            self._executor.result_of(done)
        except SqlError:
            raise
        except BaseException:
            follow.unsure = True
            raise
        await self._executor.catch_up(self._executor.written(done))

    # ------------------------------------------------------------ progress
    def record_progress(self, name: str, run: str, progress: dict[str, Any]) -> int:
        """Record a report for SHOW and /metrics.  Return the number of rows of the first load so far.

        `current_s`: the age in seconds of the source's state that the tables show.  `loaded`: the number of rows of the
        first load since the last report.
        """
        self._of(name, run)
        with self._request_of(name) as status:
            if progress.get("state", status.state) == STOPPED != status.state:
                why = f": {progress['error']}" if progress.get("error") else ""
                log.info("following %s: the follower stopped%s", status.source, why)
            for key in ("state", "position", "end", "behind_bytes", "transactions", "rows", "error"):
                if key in progress:
                    setattr(status, key, progress[key])
            status.loaded += int(progress.get("loaded", 0))
            if progress.get("current_s") is not None:
                status.current = self._followed.now() - float(progress["current_s"])
            return status.loaded

    @contextmanager
    def _request_of(self, name: str) -> Iterator[FollowerStatus]:
        """Count a request of the follower as running within this context."""
        status, follow = self._followed.statuses[name], self._follows[name]
        status.requests += 1
        try:
            yield status
        finally:
            status.requests -= 1
            status.last_request = self._followed.now()
            if follow.watch is None:
                follow.watch = asyncio.get_running_loop().call_later(FOLLOW_LOST_S, self._look, name, follow)

    def _look(self, name: str, follow: _Follow) -> None:
        """Log the follower if it is lost.  If it is not, check again at the earliest time at which it could be."""
        follow.watch = None
        status, now = self._followed.statuses.get(name), self._followed.now()
        if status is None or status.state in (WAITING, STOPPED):
            return
        if status.is_lost(now):
            log.warning("following %s: the follower has sent nothing for %.0f s; the tables stay at %s until `noria "
                        "follow` runs again", status.source, status.silent_s(now), status.position or "their start")
            return
        again = max(FOLLOW_LOST_S - status.silent_s(now), 0.1)
        follow.watch = asyncio.get_running_loop().call_later(again, self._look, name, follow)

    def close(self) -> None:
        for follow in self._follows.values():
            if follow.watch is not None:
                follow.watch.cancel()


async def records(executor: Executor) -> list[dict[str, Any]]:
    """Return the latest record of each follower in the store.  From now on, only the followers write their tables."""
    names: list[str] = await executor.ask(Inspect(0, "remembered names", RECORD))
    latest = {r["name"]: r for r in sorted(map(_record, names), key=lambda r: int(r["n"]))}
    for name, record in latest.items():
        executor.locks.followed.follow(name, record["source"], record["tables"])
    return list(latest.values())


def _kept(record: dict[str, Any]) -> str:
    return RECORD + json.dumps(record, sort_keys=True)


def _record(kept: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(kept.removeprefix(RECORD))
    return record


def _number(name: str) -> int:
    return int(name.rpartition("/")[2])
