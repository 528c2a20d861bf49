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
from typing import NamedTuple

from chaos.clock import Clock
from chaos.faults import BARE, FAULTS, LATE, Fault, Stage, chosen, weights
from chaos.lines import can_cut
from chaos.workload.boundaries import MADE as EDGES
from chaos.workload.boundaries import Boundaries
from chaos.workload.changes import MADE as BIG
from chaos.workload.changes import Big, Changes, Feeds, asked, compare
from chaos.workload.clients import (
    CONVERGE_S,
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
from chaos.workload.journal import Journal
from chaos.workload.loads import MADE as TO_LOAD
from chaos.workload.loads import compare as compare_loads
from chaos.workload.probes import PROBED, Losses, Probe
from e2e.crash_model import OWNED, TABLES, VIEWS, keys_of
from e2e.serving import Served, execute, until

RECOVERY_S = 400  # from the end of a fault until every client was answered; busy machines start JVMs slowly
VERIFY_S = 1_800  # Spark starts a JVM and recomputes all views, on whatever is left of the machine
WRITERS = 5


class Shape(NamedTuple):
    """Of the server: several workers and front ends."""

    workers: int
    fronts: int

    @staticmethod
    def drawn(seed: int) -> Shape:
        chance = random.Random(f"{seed} shape")
        return Shape(chance.randint(2, 3), chance.choice((2, 2, 3)))

    def options(self) -> tuple[str, ...]:
        return "--workers", str(self.workers), "--front-ends", str(self.fronts), "--batch-spark", "at-start"

    def there(self, disk: Path | None, clock: Clock | None) -> frozenset[str]:
        """What faults may need."""
        found = {"disk": disk is not None, "clock": clock is not None, "several": self.workers > 1,
                 "fronts": self.fronts > 1, "lines": can_cut()}
        return frozenset(what for what, is_there in found.items() if is_there)

    def __str__(self) -> str:
        return f"{self.workers} workers, {self.fronts} front ends"


@dataclass
class Figures:
    """What a run saw."""

    seed: int
    shape: str
    rounds: Counter[str] = field(default_factory=Counter)
    recovery_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    compared: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    losses: Losses = field(default_factory=Losses)
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    tolerated: Counter[str] = field(default_factory=Counter)
    slowest_s: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        killed = ", ".join(f"{what} {n}" for what, n in sorted(self.kills.items()) if n)
        lines = [f"seed {self.seed}, {self.shape}: {sum(self.rounds.values())} faults, {self.kills.total()} processes "
                 f"killed ({killed}) in {self.seconds:.0f} s; {self.compared} comparisons of all tables and views"]
        lines += [f"  {name}: {count} times, recovery median {statistics.median(s):.1f} s, longest {max(s):.1f} s"
                  for name, count in sorted(self.rounds.items()) if (s := self.recovery_s[name])]
        lines += self.losses.lines()
        lines += [f"  {what}: {count}" for what, count in sorted(self.counts.items()) if what != "tolerated"]
        lines += [f"  error {what}: {count}" for what, count in sorted(self.tolerated.items())]
        lines += [f"  longest wait of {who}: {s:.1f} s" for who, s in sorted(self.slowest_s.items())]
        return "\n".join(lines)


class Run:
    """A server that was just started, until `close`."""

    FAULTS = FAULTS

    def __init__(self, server: Served, seed: int, directory: Path, shape: Shape, disk: Path | None = None,
                 clock: Clock | None = None, only: str = "", storm: int = 3):
        self.world = World(server, seed, Journal(directory / "journal.jsonl"), directory, *shape)
        self.stage = Stage(self.world, random.Random(f"{seed} faults"), disk, clock, storm)
        self.figures = Figures(seed, str(shape), counts=self.world.journal.counts, tolerated=self.world.tolerated,
                               kills=self.stage.kills)
        self._faults = chosen(self.FAULTS, only, shape.there(disk, clock))
        self._began = time.monotonic()
        self._big = Big()
        self._program()
        self._probes: list[Probe] = []
        self._clients = self._made(shape)
        self.world.running.set()
        for c in self._clients:
            c.start()

    def _made(self, shape: Shape) -> list[Client]:
        writers = [Writes(self.world, i) for i in range(WRITERS)]
        self._probes = [Probe(self.world, w) for w in range(shape.workers)] if shape.workers > 1 else []
        return [*writers, Changes(self.world, self._big), Feeds(self.world, self._big), Boundaries(self.world),
                *self._probes, *self._readers()]

    def _readers(self) -> list[Client]:
        return [Reads(self.world, way(self.world, straight=True)) for way in (Text, Prepared, Http, Attached)]

    def _program(self) -> None:
        with self.world.server.connect() as connection:
            views = (f"CREATE VIEW {n} AS {q}" for n, (q, _) in VIEWS.items())
            for text in (*TABLES, *MARKS, *views, *BIG, *self._big.rows(), *TO_LOAD, *EDGES, PROBED):
                execute(connection, text)

    # ------------------------------------------------------------ rounds
    def rounds(self, seconds: float, kills: int = 0) -> None:
        """At least so long, and at least so many killed processes."""
        end = self._began + seconds
        self._progress("at the start", 5)
        while time.monotonic() < end or self.stage.kills.total() < kills:
            [fault] = self.stage.chance.choices(self._faults, weights(self._faults))
            self.one(fault)

    def one(self, fault: Fault) -> None:
        stage, world = self.stage, self.world
        stage.lasts(0, 1.0)
        before, began = stage.kills.total(), time.monotonic()
        stage.hit.clear()
        for p in self._probes:
            p.forget()
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
        if self._probes and len(stage.hit) == 1 and fault.permit == BARE:
            self.figures.losses.seen(fault.name, *stage.hit, began, self._probes)
        self.check()
        self.figures.seconds = time.monotonic() - self._began
        print(f"{self.figures.seconds:7.1f} s  {fault.name}: {stage.kills.total() - before} killed, answers after "
              f"{took:.1f} s, {world.journal.counts['acknowledged']} acknowledged", flush=True)

    def _failed(self) -> bool:
        if self.world.failures:
            raise self.world.failures[0]
        return False

    def _progress(self, after: str, turns: int) -> None:
        """Every client gets so many more answers."""
        wanted = [(c, c.done + turns) for c in self._clients]
        until(lambda: f"every client goes on after: {after}; waiting: {[c.name for c, n in wanted if c.done < n]}",
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
        """Everything against the model: at once, or of several workers, whose messages may be on their way, soon."""
        end = time.monotonic() + (CONVERGE_S if self.world.workers > 1 else 0)
        while True:
            try:
                self._compare()
                break
            except Failure as e:
                if time.monotonic() > end:
                    raise
                self.world.journal("chaos", "not yet", told=str(e)[:300])
        self.figures.compared += 1

    def _compare(self) -> None:
        """Base tables and every view at every key."""
        server, model = self.world.server, self.world.model
        keys = keys_of(WRITERS)
        with server.connect() as connection:
            for table in OWNED:
                self._same(table, plain(asked(self.world, f"SELECT * FROM {table}", connection)),
                           model.rows(f"SELECT * FROM {table}"))
            for name, (query, key) in VIEWS.items():
                if not key:
                    self._same(name, plain(asked(self.world, f"SELECT * FROM {name}", connection)), model.rows(query))
                    continue
                for value in keys[key[0]]:
                    text = bound(query, (value,))
                    self._same(text, plain(asked(self.world, text, connection)), model.rows(text))
            compare(self.world, self._big, connection)
            compare_loads(self.stage.loaded, connection)

    def _same(self, what: str, found: Counter[object], want: Counter[object]) -> None:
        if found != want:
            raise Failure(f"{what} differs from what was acknowledged\ntoo much: {found - want}\n"
                          f"missing: {want - found}")

    # ------------------------------------------------------------ the end
    def verify(self) -> None:
        told = self.world.server.run("verify", timeout_s=VERIFY_S)
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
