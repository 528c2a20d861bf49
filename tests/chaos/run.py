"""One run: clients, then fault after fault at random moments, and after each one a check of everything.

After a fault every writer must get answers again within a bound; then all clients pause and base tables and every
view at every key are compared with the model, over MySQL; at the end `noria verify` compares the views with what
Spark recomputes.  The seed decides faults, their order, what clients do and in which order each of them does it; the
interleaving of processes is the machine's.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from chaos.changes import MADE as BIG
from chaos.changes import Big, Changes, Feeds, compare
from chaos.clients import (
    MARKS,
    Attached,
    Client,
    Failure,
    Http,
    Permit,
    Prepared,
    Reads,
    Text,
    World,
    Writes,
    bound,
    plain,
)
from chaos.clock import Clock
from chaos.faults import FAULTS, LATE, Fault, Stage, chosen, weights
from chaos.journal import Journal
from e2e.crash_model import IDS, TABLES, TAGS, VIEWS
from e2e.serving import Served, execute, rows, until

RECOVERY_S = 400  # from the end of a fault until every client was answered; busy machines start JVMs slowly
WRITERS = 5


@dataclass
class Figures:
    """What a run saw."""

    seed: int
    rounds: Counter[str] = field(default_factory=Counter)
    recovery_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    compared: int = 0
    kills: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    tolerated: Counter[str] = field(default_factory=Counter)
    slowest_s: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {sum(self.rounds.values())} faults, {self.kills} processes killed in "
                 f"{self.seconds:.0f} s; {self.compared} comparisons of all tables and views"]
        lines += [f"  {name}: {count} times, recovery median {statistics.median(s):.1f} s, longest {max(s):.1f} s"
                  for name, count in sorted(self.rounds.items()) if (s := self.recovery_s[name])]
        lines += [f"  {what}: {count}" for what, count in sorted(self.counts.items()) if what != "tolerated"]
        lines += [f"  error {what}: {count}" for what, count in sorted(self.tolerated.items())]
        lines += [f"  longest wait of {who}: {s:.1f} s" for who, s in sorted(self.slowest_s.items())]
        return "\n".join(lines)


class Run:
    """A server that was just started, until `close`."""

    def __init__(self, server: Served, seed: int, journal: Path, disk: Path | None = None,
                 clock: Clock | None = None, only: str = "", storm: int = 3):
        self.world = World(server, seed, Journal(journal))
        self.stage = Stage(self.world, random.Random(f"{seed} faults"), disk, clock, storm)
        self.figures = Figures(seed, counts=self.world.journal.counts, tolerated=self.world.tolerated)
        self._faults = chosen(FAULTS, only, disk is not None, clock is not None)
        self._began = time.monotonic()
        self._big = Big()
        self._program()
        self._clients: list[Client] = [Writes(self.world, i) for i in range(WRITERS)]
        self._clients += [Changes(self.world, self._big), Feeds(self.world, self._big)]
        self._clients += [Reads(self.world, way(self.world, straight=True)) for way in (Text, Prepared, Http, Attached)]
        self.world.running.set()
        for c in self._clients:
            c.start()

    def _program(self) -> None:
        with self.world.server.connect() as connection:
            views = (f"CREATE VIEW {n} AS {q}" for n, (q, _) in VIEWS.items())
            for text in (*TABLES, MARKS, *views, *BIG, *self._big.rows()):
                execute(connection, text)

    # ------------------------------------------------------------ rounds
    def rounds(self, seconds: float, kills: int = 0) -> None:
        """At least so long, and at least so many killed processes."""
        end = self._began + seconds
        self._progress("at the start", 5)
        while time.monotonic() < end or self.stage.kills < kills:
            [fault] = self.stage.chance.choices(self._faults, weights(self._faults))
            self.one(fault)

    def one(self, fault: Fault) -> None:
        stage, world = self.stage, self.world
        stage.sleep(0, 1.0)
        before = stage.kills
        world.journal("chaos", "fault", fault=fault.name)
        world.faults += 1
        if fault.permit.lost:
            world.lost_until = world.faults
        world.permit = fault.permit
        fault.act(stage)
        ended = time.monotonic()
        self._progress(fault.name, 2)
        world.permit = Permit(fault.permit.numbers & LATE, away=fault.permit.away)  # errors that were on their way
        until(f"the worker is up after: {fault.name}",
              lambda: self._failed() or world.server.health()["worker"] == "up", RECOVERY_S)
        self._progress(fault.name, 1)
        took = time.monotonic() - ended
        world.permit = Permit()
        self.figures.rounds[fault.name] += 1
        self.figures.recovery_s[fault.name].append(took)
        self.check()
        self.figures.kills = stage.kills
        self.figures.seconds = time.monotonic() - self._began
        print(f"{self.figures.seconds:7.1f} s  {fault.name}: {stage.kills - before} killed, answers after "
              f"{took:.1f} s, {world.journal.counts['acknowledged']} acknowledged", flush=True)

    def _failed(self) -> bool:
        if self.world.failures:
            raise self.world.failures[0]
        return False

    def _progress(self, after: str, turns: int) -> None:
        """Every client gets so many more answers."""
        wanted = [(c, c.done + turns) for c in self._clients]
        until(f"every client goes on after: {after}; waiting: "
              f"{[c.name for c, n in wanted if c.done < n]}",
              lambda: self._failed() or all(c.done >= n for c, n in wanted), RECOVERY_S)

    def check(self) -> None:
        """Pause all clients, compare everything, go on."""
        world = self.world
        world.running.clear()
        until("every client has its answer", lambda: self._failed() or all(c.parked.is_set() for c in self._clients),
              RECOVERY_S)
        self.compare()
        world.running.set()

    def compare(self) -> None:
        """Base tables and every view at every key against the model."""
        server, model = self.world.server, self.world.model
        keys = {"tag": TAGS, "owner": range(WRITERS), "id": range(IDS)}
        with server.connect() as connection:
            for table in ("items", "log"):
                self._same(table, plain(rows(connection, f"SELECT * FROM {table}")),
                           model.rows(f"SELECT * FROM {table}"))
            for name, (query, key) in VIEWS.items():
                if not key:
                    self._same(name, plain(rows(connection, f"SELECT * FROM {name}")), model.rows(query))
                    continue
                for value in keys[key[0]]:
                    text = bound(query, (value,))
                    self._same(text, plain(rows(connection, text)), model.rows(text))
            compare(self.world, self._big, connection)
        self.figures.compared += 1

    def _same(self, what: str, found: Counter[object], want: Counter[object]) -> None:
        if found != want:
            raise Failure(f"{what} differs from what was acknowledged\ntoo much: {found - want}\n"
                          f"missing: {want - found}")

    # ------------------------------------------------------------ the end
    def verify(self) -> None:
        told = self.world.server.run("verify", timeout_s=RECOVERY_S)
        if told.returncode:
            raise Failure(f"noria verify: {told.returncode}\n{told.stdout}\n{told.stderr}")
        self.world.journal("chaos", "verified", told=told.stdout)

    def finish(self) -> Figures:
        """All clients end; the last comparison, and Spark's."""
        self.check()
        self.halt()
        self._failed()
        self.verify()
        self.figures.slowest_s = {c.name: c.slowest_s for c in self._clients}
        return self.figures

    def halt(self) -> None:
        self.world.stop.set()
        self.world.running.set()
        for c in self._clients:
            c.join(30)
        self.world.proxy.close()
