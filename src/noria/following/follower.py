"""Runs `noria follow`: makes the tables, loads the first rows, then applies the binlog until it is stopped.

    record (tables, start position) → tables → first rows → binlog: transactions → one commit for several of them

A commit applies all waiting transactions together, each completely.  So after each commit the tables equal the source
after some transaction.  Only a transaction that is too large for one commit is visible in parts.

Keeps true: each transaction of the source is applied once, in order, and its position is committed with the rows.  If
the source or the server is lost, another run begins at the last commit.  An error that no retry can help is
`CannotFollow`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from noria.core.identifiers import quote_identifier
from noria.core.limits import FOLLOW_BATCH_ROWS
from noria.following import schema
from noria.following.address import CannotFollow, SourceAddress
from noria.following.binlog import BinlogEvent, BinlogReader
from noria.following.changes import NetChange
from noria.following.schema import SourceTable
from noria.following.source import IN_FILE, BinlogPosition, SourceConnection, shown
from noria.following.target import TargetServer

REPORT_S = 1.0  # between two reports of progress, each of which queries the source's end
SAY_S = 2.0  # between two printed lines on the progress of the first load
IDLE_S = 10.0  # a position without rows is committed after this time
AGAIN_S = 1.0  # before another run
Say = Callable[[str], None]
Alive = Callable[[], None]  # called at least each second while the first rows are loaded
# Loads the first rows into the tables of the server at this URL.  The second text is the name of the follower's run.
Load = Callable[[SourceAddress, str, Sequence[SourceTable], str, Alive], None]


@dataclass(frozen=True)
class FollowOptions:
    """The command's arguments.  tables: if empty, all present and future tables of the database.  server_id: 0 for one
    that is derived from the addresses."""

    address: SourceAddress
    url: str
    tables: tuple[str, ...] = ()
    server_id: int = 0

    @property
    def replica(self) -> int:
        """The number by which the source knows this replica; it is the same after a restart."""
        made = zlib.crc32(f"{self.address.name} {self.url} {socket.gethostname()}".encode())
        return self.server_id or 2**30 + made % 2**30


@dataclass
class Follower:
    """Repeats runs until it is stopped.  over: set this to stop it.  connected: a run reached source and server."""

    wanted: FollowOptions
    load: Load
    say: Say
    connected: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Follow until `over` is set.  Raises Refused, or ConnectionError if the first connection fails."""
        while not self.over.is_set():
            try:
                FollowRun(self).go()
            except ConnectionError as e:
                if not self.connected:
                    raise
                self.say(f"{e}; trying again")
                self.over.wait(AGAIN_S)


class FollowRun:
    """One run, which begins at the record and position that the server has stored."""

    def __init__(self, follower: Follower):
        self._follower, self._wanted, self._say = follower, follower.wanted, follower.say
        self._target = TargetServer(self._wanted.url, self._wanted.address.name)
        self._source = SourceConnection(self._wanted.address)
        self._record: dict[str, Any] = {}
        self._tables: dict[str, SourceTable] = {}

    def go(self) -> None:
        try:
            self._source.check()
            at = self._begin()
            self._follower.connected = True
            self._first_rows()
            self._follow(at)
        except CannotFollow as e:
            with contextlib.suppress(ConnectionError, CannotFollow):
                self._target.report_progress({"state": "stopped", "error": str(e)})
            raise
        finally:
            self._source.close()

    # ------------------------------------------------------------ the record
    def _begin(self) -> BinlogPosition:
        record, at = self._target.begin()
        if record is None:
            record, at = self._target.begin(self._new())
        assert record is not None
        if record["server"] != (server := self._source.identity()):
            raise CannotFollow(f"{record['source']} is another server than the one that was followed ({server}, not "
                               f"{record['server']}): its binlog has other positions. End this with --release, drop "
                               f"the "
                               "tables, and follow anew")
        if self._wanted.tables and set(self._wanted.tables) != set(record["tables"]):
            raise CannotFollow(f"{', '.join(record['tables'])} of {record['source']} are followed already: leave out "
                               "--tables to go on, or end that with --release first")
        self._record = record
        self._tables = {name: SourceTable.from_json(name, body) for name, body in record["tables"].items()}
        return BinlogPosition(record["base"], at or record["start"])

    def _new(self) -> dict[str, Any]:
        address, start = self._wanted.address, self._source.consistent()
        with self._source.cursor() as cursor:
            there = schema.tables_of(cursor, address.database)
            names = list(self._wanted.tables) or there
            if missing := [n for n in names if n not in there]:
                raise CannotFollow(f"there is no table {missing[0]} in {address.source} (or the user may not read it); "
                                   f"there are {', '.join(there)}")
            if not names:
                raise CannotFollow(f"there is no table in {address.source} (or none that the user may read)")
            if len({n.lower() for n in names}) < len(names):
                raise CannotFollow("names of tables differ only in case, which are one name here: give some by "
                                   "--tables")
            tables = schema.read(cursor, address.database, names)
        for note in (n for t in tables.values() for n in schema.notes(t)):
            self._say(f"note: {note}")
        return {"name": address.name, "n": 0, "source": address.source, "server": self._source.identity(),
                "base": start.base, "start": start.number, "loaded": False, "consistent": 0, "file": [0, 0],
                "all": not self._wanted.tables, "tables": {n: t.as_json() for n, t in tables.items()}}

    def _first_rows(self) -> None:
        if self._record["loaded"]:
            return
        self._target.report_progress({"state": "loading"})
        self._make(self._tables)
        self._say(f"loading {', '.join(self._tables)}")
        began = said = time.monotonic()

        def alive() -> None:
            nonlocal said
            rows = self._target.report_progress({"state": "loading"})
            if (now := time.monotonic()) - said >= SAY_S:
                said = now
                self._say(f"loading for {now - began:.0f} s, {rows:,} rows so far"
                          + ("" if rows else "; Spark is starting"))

        tables = list(self._tables.values())
        self._follower.load(self._wanted.address, self._wanted.url, tables, self._target.run, alive)
        self._note(loaded=True, consistent=self._source.end().number)

    def _note(self, **changed: Any) -> None:
        self._record = {**self._record, **changed, "n": self._record["n"] + 1}
        self._target.note(self._record)

    # ------------------------------------------------------------ the binlog
    def _follow(self, at: BinlogPosition) -> None:
        file, created = self._record["file"]
        binlog = BinlogReader(self._wanted.address, self._wanted.replica, at, self._tables,
                              created if file == at.number // IN_FILE else 0)
        progress = FollowProgress(self._source, self._target, self._record, at, self._say)
        try:
            while not self._follower.over.is_set():
                found = binlog.next(0 if progress.net else REPORT_S / 2)
                if found is not None:
                    self._take(found, progress)
                elif progress.net or progress.is_due():
                    self._commit(progress)
                progress.report(found is None)
        finally:
            binlog.close()
            with contextlib.suppress(ConnectionError, CannotFollow):
                if not progress.net and not progress.is_applying:
                    self._commit(progress)
                self._target.report_progress({"state": "stopped"})

    def _take(self, found: BinlogEvent, progress: FollowProgress) -> None:
        if found.created:
            file = [found.at.number // IN_FILE if found.at is not None else 0, found.created]
            if file != self._record["file"]:
                self._note(file=file)
        if found.at is None or found.meaning is not None:
            self._commit(progress)
        if found.meaning is not None:
            self._change(found)
        progress.take(found, self._tables)
        if found.at is None:
            self._apply(0, progress)
        elif found.handled is not None:
            self._commit(progress)
            found.handled.set()
        elif progress.units >= FOLLOW_BATCH_ROWS:
            self._commit(progress)

    def _commit(self, progress: FollowProgress) -> None:
        if progress.net or progress.last.number > progress.at:
            number = progress.last.number
            self._apply(number, progress)
            progress.at, progress.committed = number, time.monotonic()

    def _apply(self, number: int, progress: FollowProgress) -> None:
        progress.is_applying = True
        self._target.apply(number, progress.net.batches(self._tables))
        progress.net, progress.units, progress.is_applying = NetChange(), 0, False

    # ------------------------------------------------------------ changes of tables
    def _change(self, found: BinlogEvent) -> None:
        assert found.meaning is not None and found.at is not None
        what, names = found.meaning
        known = [n for n in names if n in self._tables]
        is_new = self._record["all"] and any(n not in self._tables for n in names)
        if what == "truncate":
            for name in known:
                self._target.sql(f"TRUNCATE TABLE {quote_identifier(name)}")
        elif what == "create" and is_new:
            self._add(names, found)
        elif what in ("alter", "create") and known and "REPLACE" not in found.statement.upper().split("TABLE")[0]:
            if self._now(known, found) != {n: self._tables[n] for n in known}:
                self._refuse(found, "columns or keys are others now")
            self._make(known)  # an earlier run may have ended between its note and this
        elif what == "database" or known or (is_new and what in ("rename", "alter")):
            self._refuse(found, "that is not followed")

    def _add(self, names: Sequence[str], found: BinlogEvent) -> None:
        """Follow new tables of the source.  They are made empty, because the binlog has all their rows."""
        new = self._now([n for n in names if n not in self._tables], found)
        if new:
            self._note(tables={**self._record["tables"], **{n: t.as_json() for n, t in new.items()}})
        self._tables |= new  # the binlog's reader uses the same dictionary
        self._make(new)
        for name in new:
            self._say(f"{name} is followed, too")

    def _make(self, names: Iterable[str]) -> None:
        for name in names:
            self._target.sql(schema.create(self._tables[name]))

    def _now(self, names: Sequence[str], found: BinlogEvent) -> dict[str, SourceTable]:
        """Return the tables' present definitions.  Later changes to them follow in the binlog."""
        try:
            with self._source.cursor() as cursor:
                return schema.read(cursor, self._wanted.address.database, names)
        except CannotFollow as e:
            self._refuse(found, str(e))

    def _refuse(self, found: BinlogEvent, why: str) -> NoReturn:
        assert found.at is not None
        raise CannotFollow(f"before {shown(found.at)} the source ran: {found.statement[:1_000]}; {why}. All before it "
                           f"is "
                           "applied. To have it here: end this with --release, drop the tables here, and follow anew")


@dataclass
class FollowProgress:
    """The progress of a run.  `net`, `units`: the changes to apply, and their size.  `last`: the end of the last
    complete transaction that was read.  `at`: the position that the server has committed."""

    source: SourceConnection
    target: TargetServer
    record: dict[str, Any]
    last: BinlogPosition
    say: Say
    net: NetChange = field(default_factory=NetChange)
    at: int = 0
    committed: float = field(default_factory=time.monotonic)
    reported_at: float = 0.0
    time: int = 0
    transactions: int = 0
    rows: int = 0
    units: int = 0
    is_applying: bool = False
    is_announced: bool = False

    def __post_init__(self) -> None:
        self.at = self.last.number
        with self.source.cursor() as cursor:
            cursor.execute("SELECT UNIX_TIMESTAMP()")
            self._ahead = float(cursor.fetchone()[0]) - time.time()  # the source's clock

    def take(self, found: BinlogEvent, tables: dict[str, SourceTable]) -> None:
        self.net.add(found.changes, tables)
        self.rows += len(found.changes)
        self.units += found.units
        self.time = found.time or self.time
        if found.at is not None:
            self.last = max(self.last, found.at, key=lambda p: p.number)
            self.transactions += bool(found.changes)

    def is_due(self) -> bool:
        """Whether to commit a position although there are no rows."""
        if self.last.number == self.at:
            return False
        return time.monotonic() - self.committed >= IDLE_S or self.at < self.record["consistent"] <= self.last.number

    def report(self, is_idle: bool) -> None:
        """Report the progress, for SHOW and /metrics, at most every REPORT_S."""
        if time.monotonic() - self.reported_at < REPORT_S:
            return
        self.reported_at = time.monotonic()
        end = self.source.end()
        is_there = is_idle and not self.net and self.last.number >= end.number
        age = 0.0 if is_there else max(time.time() + self._ahead - self.time, 0.0) if self.time else None
        consistent = self.at >= self.record["consistent"]
        self.target.report_progress({
            "state": "following" if consistent else "catching up", "position": shown(self.last), "end": shown(end),
            "behind_bytes": self.source.behind(self.last, end), "current_s": age, "transactions": self.transactions,
            "rows": self.rows, "error": ""})
        if consistent and not self.is_announced:
            self.is_announced = True
            self.say(f"noria following {self.record['source']} from {shown(self.last)}")
