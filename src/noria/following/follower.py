"""One `noria follow`: what there is, the first rows, then the binlog, as long as it runs.

    record (what, from which position on) → tables → first rows → binlog: transactions → one commit for some of them

Transactions that wait are applied together, each whole: the tables are, from one commit to the next, what the source
was after some transaction.  Only one that is too large for a commit is seen in parts.

Keeps true: what the source had committed is applied once, in its order; the position goes with the rows.  When the
source or the server is lost another run begins, where the last commit was; what can never be done is `Refused`.
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

from noria.core.limits import FOLLOW_BATCH_ROWS
from noria.following import schema
from noria.following.address import Address, Refused
from noria.following.binlog import Binlog, Transaction
from noria.following.changes import Net
from noria.following.schema import SourceTable
from noria.following.source import IN_FILE, Place, Source, shown
from noria.following.target import Target

TELL_S = 1.0  # between two looks at how far the source is
SAY_S = 2.0  # between two lines on how far the first load is
IDLE_S = 10.0  # a position without rows is remembered this late
AGAIN_S = 1.0  # before another run
Say = Callable[[str], None]
Alive = Callable[[], None]  # called at least each second while the first rows are loaded
# The first rows into the tables at this server; the text is the name of the follower's run, by which tasks report.
Load = Callable[[Address, str, Sequence[SourceTable], str, Alive], None]


@dataclass(frozen=True)
class Wanted:
    """tables: none, all of the database and those that it gets; server_id: 0, one made of what follows what."""

    address: Address
    url: str
    tables: tuple[str, ...] = ()
    server_id: int = 0

    @property
    def replica(self) -> int:
        """The number by which the source knows this replica: the same whenever it starts again."""
        made = zlib.crc32(f"{self.address.name} {self.url} {socket.gethostname()}".encode())
        return self.server_id or 2**30 + made % 2**30


@dataclass
class Follower:
    wanted: Wanted
    load: Load
    say: Say
    connected: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until it is interrupted, is over, or cannot go on."""
        while not self.over.is_set():
            try:
                Run(self).go()
            except ConnectionError as e:
                if not self.connected:
                    raise
                self.say(f"{e}; trying again")
                self.over.wait(AGAIN_S)


class Run:
    """One run: from what the server remembers on."""

    def __init__(self, follower: Follower):
        self._follower, self._wanted, self._say = follower, follower.wanted, follower.say
        self._target = Target(self._wanted.url, self._wanted.address.name)
        self._source = Source(self._wanted.address)
        self._record: dict[str, Any] = {}
        self._tables: dict[str, SourceTable] = {}

    def go(self) -> None:
        try:
            self._source.check()
            at = self._begin()
            self._follower.connected = True
            self._first_rows()
            self._follow(at)
        except Refused as e:
            with contextlib.suppress(ConnectionError, Refused):
                self._target.tell({"state": "stopped", "error": str(e)})
            raise
        finally:
            self._source.close()

    # ------------------------------------------------------------ what is followed
    def _begin(self) -> Place:
        record, at = self._target.begin()
        if record is None:
            record, at = self._target.begin(self._new())
        assert record is not None
        if record["server"] != (server := self._source.identity()):
            raise Refused(f"{record['source']} is another server than the one that was followed ({server}, not "
                          f"{record['server']}): its binlog has other positions. End this with --release, drop the "
                          "tables, and follow anew")
        if self._wanted.tables and set(self._wanted.tables) != set(record["tables"]):
            raise Refused(f"{', '.join(record['tables'])} of {record['source']} are followed already: leave out "
                          "--tables to go on, or end that with --release first")
        self._record = record
        self._tables = {name: SourceTable.from_json(name, body) for name, body in record["tables"].items()}
        return Place(record["base"], at or record["start"])

    def _new(self) -> dict[str, Any]:
        address, start = self._wanted.address, self._source.consistent()
        with self._source.cursor() as cursor:
            there = schema.tables_of(cursor, address.database)
            names = list(self._wanted.tables) or there
            if missing := [n for n in names if n not in there]:
                raise Refused(f"there is no table {missing[0]} in {address.source} (or the user may not read it); "
                              f"there are {', '.join(there)}")
            if not names:
                raise Refused(f"there is no table in {address.source} (or none that the user may read)")
            if len({n.lower() for n in names}) < len(names):
                raise Refused("names of tables differ only in case, which are one name here: give some by --tables")
            tables = schema.read(cursor, address.database, names)
        for note in (n for t in tables.values() for n in schema.notes(t)):
            self._say(f"note: {note}")
        return {"name": address.name, "n": 0, "source": address.source, "server": self._source.identity(),
                "base": start.base, "start": start.number, "loaded": False, "consistent": 0, "file": [0, 0],
                "all": not self._wanted.tables, "tables": {n: t.as_json() for n, t in tables.items()}}

    def _first_rows(self) -> None:
        if self._record["loaded"]:
            return
        self._target.tell({"state": "loading"})
        self._make(self._tables)
        self._say(f"loading {', '.join(self._tables)}")
        began = said = time.monotonic()

        def alive() -> None:
            nonlocal said
            rows = self._target.tell({"state": "loading"})
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
    def _follow(self, at: Place) -> None:
        file, created = self._record["file"]
        binlog = Binlog(self._wanted.address, self._wanted.replica, at, self._tables,
                        created if file == at.number // IN_FILE else 0)
        progress = Progress(self._source, self._target, self._record, at, self._say)
        try:
            while not self._follower.over.is_set():
                found = binlog.next(0 if progress.net else TELL_S / 2)
                if found is not None:
                    self._take(found, progress)
                elif progress.net or progress.is_due():
                    self._commit(progress)
                progress.tell(found is None)
        finally:
            binlog.close()
            with contextlib.suppress(ConnectionError, Refused):
                if not progress.net and not progress.is_applying:
                    self._commit(progress)
                self._target.tell({"state": "stopped"})

    def _take(self, found: Transaction, progress: Progress) -> None:
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

    def _commit(self, progress: Progress) -> None:
        if progress.net or progress.last.number > progress.at:
            number = progress.last.number
            self._apply(number, progress)
            progress.at, progress.committed = number, time.monotonic()

    def _apply(self, number: int, progress: Progress) -> None:
        progress.is_applying = True
        self._target.apply(number, progress.net.batches(self._tables))
        progress.net, progress.units, progress.is_applying = Net(), 0, False

    # ------------------------------------------------------------ changes of tables
    def _change(self, found: Transaction) -> None:
        assert found.meaning is not None and found.at is not None
        what, names = found.meaning
        known = [n for n in names if n in self._tables]
        is_new = self._record["all"] and any(n not in self._tables for n in names)
        if what == "truncate":
            for name in known:
                self._target.sql(f"TRUNCATE TABLE {schema.quoted(name)}")
        elif what == "create" and is_new:
            self._add(names, found)
        elif what in ("alter", "create") and known and "REPLACE" not in found.statement.upper().split("TABLE")[0]:
            if self._now(known, found) != {n: self._tables[n] for n in known}:
                self._refuse(found, "columns or keys are others now")
            self._make(known)  # a run before may have ended when it had noted it
        elif what == "database" or known or (is_new and what in ("rename", "alter")):
            self._refuse(found, "that is not followed")

    def _add(self, names: Sequence[str], found: Transaction) -> None:
        """Tables that the source has made: empty, their rows come."""
        new = self._now([n for n in names if n not in self._tables], found)
        if new:
            self._note(tables={**self._record["tables"], **{n: t.as_json() for n, t in new.items()}})
        self._tables |= new  # the reader has the same dictionary
        self._make(new)
        for name in new:
            self._say(f"{name} is followed, too")

    def _make(self, names: Iterable[str]) -> None:
        for name in names:
            self._target.sql(schema.create(self._tables[name]))

    def _now(self, names: Sequence[str], found: Transaction) -> dict[str, SourceTable]:
        """As they are by now: whatever came since comes in the binlog, too."""
        try:
            with self._source.cursor() as cursor:
                return schema.read(cursor, self._wanted.address.database, names)
        except Refused as e:
            self._refuse(found, str(e))

    def _refuse(self, found: Transaction, why: str) -> NoReturn:
        assert found.at is not None
        raise Refused(f"before {shown(found.at)} the source ran: {found.statement[:1_000]}; {why}. All before it is "
                      "applied. To have it here: end this with --release, drop the tables here, and follow anew")


@dataclass
class Progress:
    """net: what is to be applied, so many units of it; last: the end of what was read and is whole; at: what the server
    has remembered."""

    source: Source
    target: Target
    record: dict[str, Any]
    last: Place
    say: Say
    net: Net = field(default_factory=Net)
    at: int = 0
    committed: float = field(default_factory=time.monotonic)
    told: float = 0.0
    time: int = 0
    transactions: int = 0
    rows: int = 0
    units: int = 0
    is_applying: bool = False
    has_told: bool = False

    def __post_init__(self) -> None:
        self.at = self.last.number
        with self.source.cursor() as cursor:
            cursor.execute("SELECT UNIX_TIMESTAMP()")
            self._ahead = float(cursor.fetchone()[0]) - time.time()  # the source's clock

    def take(self, found: Transaction, tables: dict[str, SourceTable]) -> None:
        self.net.add(found.changes, tables)
        self.rows += len(found.changes)
        self.units += found.units
        self.time = found.time or self.time
        if found.at is not None:
            self.last = max(self.last, found.at, key=lambda p: p.number)
            self.transactions += bool(found.changes)

    def is_due(self) -> bool:
        """Is a position without rows to be remembered?"""
        if self.last.number == self.at:
            return False
        return time.monotonic() - self.committed >= IDLE_S or self.at < self.record["consistent"] <= self.last.number

    def tell(self, is_idle: bool) -> None:
        """For SHOW and /metrics, now and then."""
        if time.monotonic() - self.told < TELL_S:
            return
        self.told = time.monotonic()
        end = self.source.end()
        is_there = is_idle and not self.net and self.last.number >= end.number
        age = 0.0 if is_there else max(time.time() + self._ahead - self.time, 0.0) if self.time else None
        consistent = self.at >= self.record["consistent"]
        self.target.tell({"state": "following" if consistent else "catching up", "position": shown(self.last),
                          "end": shown(end), "behind_bytes": self.source.behind(self.last, end), "current_s": age,
                          "transactions": self.transactions, "rows": self.rows, "error": ""})
        if consistent and not self.has_told:
            self.has_told = True
            self.say(f"noria following {self.record['source']} from {shown(self.last)}")
