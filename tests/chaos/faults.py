"""What goes wrong: each fault is a function that does it, waits as long as it lasts, and puts back what it took.

Keeps true: a fault harms nothing but the server under test, its directories and its clients; after it returns the
server has all it needs to recover by itself (a front end that was killed has been started again).

Left out: corrupt files below the data directory, after which not everything can be as acknowledged
(`tests/e2e/failures/test_damaged_data.py`); corrupt view files, which are the worker's own, and trusted
(`fuzz/test_fuzz_views.py` corrupts copies).
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from chaos import lines
from chaos.clock import Clock
from chaos.workload.clients import Permit, World
from chaos.workload.loads import Loaded, loading
from chaos.workload.slow import slow_readers
from e2e.serving import Served, alive, described, processes_with, rows, until

KILLED, TOO_LATE, DISK_FULL, NO_MEMORY, INTERNAL = 1317, 3024, 1021, 1041, 1105
LATE = frozenset({INTERNAL, TOO_LATE})  # what ended two workers is refused; a read waits for max_execution_time
UP_S = 400  # a busy machine takes long to start a worker


@dataclass
class Stage:
    """The server and what faults need beside it.  disk: a small one that holds the data directory, or None; clock: of
    the server's own, or None; storm: kills in a row, at most; kills: by what was killed; hit: the workers to which
    something was done since the fault began."""

    world: World
    chance: random.Random
    disk: Path | None = None
    clock: Clock | None = None
    storm: int = 3
    kills: Counter[str] = field(default_factory=Counter)
    hit: set[int] = field(default_factory=set)
    loaded: Loaded = field(default_factory=Loaded)

    @property
    def server(self) -> Served:
        return self.world.server

    def lasts(self, least: float, most: float) -> None:
        """Let a fault last for so many seconds, as the seed says, or until the run ends."""
        self.world.stop.wait(self.chance.uniform(least, most))

    def pids(self, which: str) -> list[int]:
        """Process numbers; none for a worker that is not up."""
        with contextlib.suppress(OSError, KeyError, IndexError):
            pid = self.server.pid(which)
            return [pid] if alive(pid) else []
        return []

    def named(self, *which: str) -> list[str]:
        """Of "worker", "2 workers", "front end process": drawn ones; of "workers", "front end processes": all."""
        workers = [f"worker {w}" for w in range(self.world.workers)]
        fronts = [f"front end {n}" for n in range(self.world.fronts)] if self.world.fronts > 1 else []
        drawn: dict[str, Callable[[], list[str]]] = {
            "worker": lambda: self.chance.sample(workers, 1), "2 workers": lambda: self.chance.sample(workers, 2),
            "workers": lambda: workers, "front end process": lambda: self.chance.sample(fronts, 1),
            "front end processes": lambda: fronts}
        return [name for w in which for name in drawn.get(w, lambda w=w: [w])()]

    def signal(self, number: int, *which: str) -> list[int]:
        """To all of these at once."""
        named = self.named(*which)
        pids = [(name, pid) for name in named for pid in self.pids(name)]
        for name, pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                self.kills[name.rstrip(" 0123456789")] += number == signal.SIGKILL
        self.hits(named)
        return [pid for _, pid in pids]

    def hits(self, named: Iterable[str]) -> None:
        self.hit |= {int(n.rpartition(" ")[2]) for n in named if n.startswith("worker ")}


@dataclass(frozen=True)
class Fault:
    name: str
    act: Callable[[Stage], None]
    permit: Permit
    weight: int
    needs: str = ""  # of "disk", "clock", "several" workers, several "fronts", connections that can be cut ("lines")


# ---------------------------------------------------------------- processes end
def kill(*which: str) -> Callable[[Stage], None]:
    def act(stage: Stage) -> None:
        if "front" in which:
            _restart(stage, *which)
        else:
            stage.signal(signal.SIGKILL, *which)

    return act


def _restart(stage: Stage, *which: str) -> None:
    server, before = stage.server, processes_with(stage.server.tag)
    stage.signal(signal.SIGKILL, *(w for w in which if w != "front"), "front")
    server.process.wait(30)
    try:
        until("what the dead server left ends by itself", lambda: not before & processes_with(server.tag), 60)
    except AssertionError as e:
        raise AssertionError(f"{e}; left: {described(before)}") from None
    server.start()


def kill_again(stage: Stage) -> None:
    """A worker, and the next one while it recovers or soon after, or when it has answered somebody."""
    for _ in range(stage.chance.randint(2, stage.storm)):
        [name] = stage.named("worker")
        old = stage.signal(signal.SIGKILL, name)
        until("a new worker is up after a kill", partial(_replaced, stage, name, old), UP_S)
        if stage.chance.random() < 0.3:
            _until_acknowledged(stage.world)
        stage.lasts(0, 1.0)


def _replaced(stage: Stage, name: str, old: list[int]) -> bool:
    return stage.pids(name) not in ([], old)


def _until_acknowledged(world: World) -> None:
    done = world.acknowledged()
    until("a statement is acknowledged", lambda: world.failures or world.acknowledged() > done, UP_S)


# ---------------------------------------------------------------- processes stand still
def freeze(*which: str, least: float = 0.1, most: float = 5.0) -> Callable[[Stage], None]:
    """SIGSTOP, and SIGCONT after a while, for those that still are there then."""

    def act(stage: Stage) -> None:
        stopped = stage.signal(signal.SIGSTOP, *which)
        stage.lasts(least, most)
        for pid in reversed(stopped):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return act


def freeze_and_kill(stage: Stage) -> None:
    """One of two stands still while the other one is lost and comes back."""
    frozen, killed = stage.named("2 workers")
    stopped = stage.signal(signal.SIGSTOP, frozen)
    stage.lasts(0, 1.0)
    stage.signal(signal.SIGKILL, killed)
    stage.lasts(0.1, 4.0)
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def freeze_for_good(which: str) -> Callable[[Stage], None]:
    """A process that never goes on: it is given up and replaced."""

    def act(stage: Stage) -> None:
        stopped = stage.signal(signal.SIGSTOP, which)
        until(f"a frozen {which} is ended", lambda: not any(map(alive, stopped)), UP_S)

    return act


# ---------------------------------------------------------------- connections of workers end
def apart(stage: Stage) -> None:
    """Two workers lose the connections between them, some times, in one direction or in both."""
    for _ in range(stage.chance.randrange(1, 4)):
        one, other = stage.named("2 workers")
        for here, there in ((one, other), (other, one))[: stage.chance.randrange(1, 3)]:
            for pid in stage.pids(here):
                lines.cut(pid, f"peer-{there.rpartition(' ')[2]}.sock")
        stage.lasts(0, 0.5)


def cut_off(stage: Stage) -> None:
    """A worker loses its connections to the server: it ends, and another one comes."""
    [name] = stage.named("worker")
    end = "link" if stage.world.workers == 1 else f"link-{name.rpartition(' ')[2]}"
    for pid in stage.pids(name):
        lines.cut(pid, end)
    stage.hits([name])


# ---------------------------------------------------------------- what the system has to give
def full_disk(stage: Stage) -> None:
    """Others take all the space of the data directory, for a while."""
    assert stage.disk is not None
    path = stage.disk / "others"
    try:
        with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))
        stage.lasts(0.5, 4)
    finally:
        path.unlink()


def few_files(which: str) -> Callable[[Stage], None]:
    """The soft limit of open files falls to what is open, or a few more."""

    def act(stage: Stage) -> None:
        [name] = stage.named(which)
        for pid in stage.pids(name):
            with contextlib.suppress(OSError):
                before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                now = len(os.listdir(f"/proc/{pid}/fd")) + stage.chance.randrange(6)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(now, before[1]), before[1]))
                stage.lasts(0.5, 4)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    return act


def clock_jumps(stage: Stage) -> None:
    """The time of day goes days ahead and back, hours, seconds, in every process; and is right again."""
    assert stage.clock is not None
    far = [stage.chance.choice((-1, 1)) * stage.chance.choice((2, 600, 86_400, 10 * 86_400)) for _ in range(3)]
    for seconds in (*far, 0):
        stage.clock.jump(seconds)
        until(f"the server's clock is moved by {seconds} s", lambda: _follows(stage), UP_S)
        stage.lasts(0.2, 1.5)


def _follows(stage: Stage) -> bool:
    assert stage.clock is not None
    with stage.server.connect() as connection:
        [(now,)] = rows(connection, "SELECT UTC_TIMESTAMP()")
    return stage.clock.shown(now)


def memory(stage: Stage) -> None:
    """The limit falls below what is held, everything is evicted, and the limit is as it was."""
    for _ in range(stage.chance.randrange(1, 6)):
        with contextlib.suppress(OSError):
            stage.server.get("/limit", {"memory_limit": f"{stage.chance.choice((1, 4, 16, 64))}M"})
            stage.lasts(0, 0.5)
            stage.server.get("/evict", {} if stage.chance.random() < 0.5 else {"bytes": 2**stage.chance.randrange(24)})
    stage.server.get("/limit", {"memory_limit": "1G"})


# ---------------------------------------------------------------- clients
def cut(stage: Stage) -> None:
    for _ in range(stage.chance.randrange(1, 5)):
        stage.world.proxy.cut(stage.chance)
        stage.lasts(0, 0.4)


def kill_queries(stage: Stage) -> None:
    """KILL QUERY of whoever is there, many times; now and then KILL of the connection."""
    with stage.server.connect() as connection:
        for _ in range(stage.chance.randrange(5, 60)):
            with connection.cursor() as cursor:
                cursor.execute("SHOW PROCESSLIST")
                others = [int(r[0]) for r in cursor.fetchall() if int(r[0]) != connection.thread_id()]
                if others:
                    with contextlib.suppress(Exception):  # 1094: it is gone by now
                        cursor.execute(f"KILL {stage.chance.choice(('QUERY', 'QUERY', 'QUERY', ''))} "
                                       f"{stage.chance.choice(others)}")
            stage.lasts(0, 0.03)


def together(*acts: Callable[[Stage], None]) -> Callable[[Stage], None]:
    def act(stage: Stage) -> None:
        for one in acts:
            one(stage)

    return act


_GONE = Permit(LATE, lost=True, away=True)
BARE = Permit(LATE, away=True)
FAULTS = (
    Fault("kill worker", kill("worker"), BARE, 8),
    Fault("kill worker again and again", kill_again, BARE, 3),
    Fault("kill JVM", kill("jvm"), BARE, 2),
    Fault("kill driver", kill("driver"), BARE, 2),
    Fault("kill worker and JVM", kill("worker", "jvm"), BARE, 1),
    Fault("kill front end", kill("front"), _GONE, 2),
    Fault("kill everything", kill("workers", "jvm", "driver", "front", "front end processes"), _GONE, 2),
    Fault("kill two workers", kill("2 workers"), BARE, 4, "several"),
    Fault("kill all workers", kill("workers"), BARE, 2, "several"),
    Fault("kill front end process", kill("front end process"), _GONE, 3, "fronts"),
    Fault("freeze front end process", freeze("front end process"), _GONE, 2, "fronts"),
    Fault("freeze two workers", freeze("2 workers"), BARE, 2, "several"),
    Fault("freeze a worker, kill another", freeze_and_kill, BARE, 2, "several"),
    Fault("kill worker, kill JVM after it", together(kill("worker"), kill("jvm")), BARE, 1, "several"),
    Fault("cut two workers apart", apart, Permit(LATE), 3, "several lines"),
    Fault("cut a worker off", cut_off, BARE, 2, "lines"),
    Fault("bulk load", loading(), Permit(LATE), 1),
    Fault("bulk load, kill worker", loading(kill("worker")), BARE, 2),
    Fault("bulk load, kill two workers", loading(kill("2 workers")), BARE, 1, "several"),
    Fault("freeze worker", freeze("worker"), BARE, 2),
    Fault("freeze worker for good", freeze_for_good("worker"), BARE, 1),
    Fault("freeze driver for good", freeze_for_good("driver"), BARE, 1),
    Fault("freeze JVM for good", freeze_for_good("jvm"), BARE, 1),
    Fault("freeze front end", freeze("front", most=7.0), BARE, 2),
    Fault("freeze driver", freeze("driver"), BARE, 1),
    Fault("freeze JVM", freeze("jvm"), BARE, 1),
    Fault("freeze everything", freeze("front", "front end processes", "workers", "driver", "jvm"), BARE, 1),
    Fault("freeze front end, kill worker", together(kill("worker"), freeze("front")), BARE, 1),
    Fault("full disk", full_disk, Permit(LATE | {DISK_FULL}, away=True), 3, "disk"),
    Fault("full disk, kill worker", together(kill("worker"), full_disk),
          Permit(LATE | {DISK_FULL}, away=True), 1, "disk"),
    Fault("few files for the worker", few_files("worker"),
          Permit(LATE | {DISK_FULL, NO_MEMORY}, away=True), 1),
    Fault("few files for the front end", few_files("front"),
          Permit(LATE | {DISK_FULL, NO_MEMORY}, lost=True, away=True), 1),
    Fault("clock jumps", clock_jumps, Permit(), 2, "clock"),
    Fault("memory limit and evictions", memory, Permit(), 3),
    Fault("connections cut", cut, Permit(lost=True), 3),
    Fault("KILL QUERY", kill_queries, Permit(frozenset({KILLED}), lost=True), 3),
    Fault("slow readers", slow_readers, Permit(), 3),
    Fault("slow readers, kill worker", together(kill("worker"), slow_readers), BARE, 1),
    Fault("connections cut, kill worker", together(cut, kill("worker")), Permit(LATE, lost=True, away=True), 1),
    Fault("KILL QUERY, kill worker", together(kill("worker"), kill_queries),
          Permit(LATE | {KILLED}, lost=True, away=True), 1),
)


@contextlib.contextmanager
def small_disk(directory: Path, megabytes: int = 384) -> Iterator[Path | None]:
    """A file system of its own, None where this user may not mount one."""
    directory.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)],
                          capture_output=True, check=False)
    if made.returncode:
        yield None
        return
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def chosen(faults: tuple[Fault, ...], only: str, there: frozenset[str]) -> list[Fault]:
    """Those that this machine and this server can have, and whose names have the text."""
    return [f for f in faults if only in f.name and there.issuperset(f.needs.split())]


def weights(faults: list[Fault]) -> list[Any]:
    return [f.weight for f in faults]
