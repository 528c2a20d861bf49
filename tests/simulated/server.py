"""A server in the simulator: all of `noria serve --workers N --front-ends K` but Spark, sockets and processes.

What dies, dies as a process: nobody says goodbye, what it wrote is on its way, what it had in memory is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

from noria.control.program import Program
from noria.core.limits import LEASE_MS, OFF_LOOP_ROWS
from noria.runtime.cluster.cluster_link import ClusterLink
from noria.runtime.link.link import WorkerLink
from noria.runtime.transport import wire
from noria.runtime.transport.heartbeats import doing_path
from noria.runtime.transport.shard_owner import Fenced, RemoteOwner
from noria.runtime.transport.wire import private_endpoint
from noria.runtime.worker.frontier import FrontierReader, frontier_path
from noria.runtime.worker.worker_main import WorkerConfig, link_endpoint, views_dir
from noria.server.answering.executor import Executor
from noria.server.fronts import messages
from noria.server.fronts.controller import Fronts
from noria.server.fronts.process import FrontEnd
from noria.server.logins import LoginGuard
from noria.server.mysql import account
from noria.server.mysql.auth import Directory
from noria.server.mysql.session import Conversation
from noria.server.sessions.sessions import Sessions
from noria.views.reader import attach
from simulated.loop import PROCESS, Happens, SeededLoop
from simulated.wires import AsyncEnd, SimMesh
from simulated.workers import SimProcess, fenced

REPLY_BYTES = 2**20


class _Heart:
    """`liveness.FrontEndHeartbeat` without its thread: cancellations come to the worker at once."""

    def __init__(self, cancelled: Callable[[int, int], None]):
        self._cancelled = cancelled

    def start(self) -> None:
        pass

    close = start

    def add(self, incarnation: int, descriptor: int) -> None:
        pass

    def remove(self, incarnation: int) -> None:
        pass

    def cancel(self, incarnation: int, number: int) -> None:
        self._cancelled(incarnation, number)


class SimFront(FrontEnd):
    """A front end's process; its clients talk to it in its protocol's packets."""

    def __init__(self, number: int, all: dict[int, SimFront]):
        super().__init__(number, asyncio.Event())
        self._all, self.accounts = all, Directory({"": account("")}, None)
        self.gone = asyncio.Event()

    async def _listen(self, begin: messages.StartServing) -> None:
        self._next, self._step = begin.first, begin.step
        self._all[self._number] = self
        self.send(messages.FrontEndReady("here", 1))
        self._soon(self._report())
        self._soon(self._refresh())

    def connect(self) -> Conversation:
        number, self._next = self._next, self._next + self._step
        return Conversation(self.sessions, self.accounts, number, "here", bytes(20), LoginGuard())

    def die(self) -> None:
        if self._all.get(self._number) is self:
            del self._all[self._number]
        transport: Any = self._transport
        transport.die()
        for task in self._tasks:
            task.cancel()
        self.gone.set()
        self._ended.set()


class SimFronts(Fronts):
    """all: those that serve, by number."""

    def __init__(self, all: dict[int, SimFront], loop: SeededLoop, *arguments: Any):
        super().__init__(*arguments, clock=loop.time)
        self._running, self._loop = all, loop
        self.running: dict[SimFront, None] = {}

    async def _process(self, number: int, path: str) -> tuple[int, int]:
        front = SimFront(number, self._running)
        self.running[front] = None
        await self._loop.create_unix_connection(lambda: front, path)
        await front._ended.wait()
        front.die()
        self.running.pop(front)
        return 0, 0


class Life:
    """A controller's, of one epoch."""

    def __init__(self, sim: Simulated, epoch: int):
        self.epoch, loop, workers = epoch, sim.loop, sim.workers
        ends = [link_endpoint(sim.run_dir, w, workers) for w in range(workers)]
        self.configs = [WorkerConfig(w, workers, ends[w], sim.data_dir, sim.run_dir, epoch, memory_limit=0,
                                     spark=False) for w in range(workers)]
        elsewhere = RemoteOwner(end=sim.kill)
        self.links = [WorkerLink(ends[w], epoch, w, lease_ms=LEASE_MS, clock=loop.time, elsewhere=elsewhere,
                                 doing=doing_path(sim.run_dir, w), note=sim.note,
                                 frontier_of=FrontierReader(frontier_path(sim.run_dir, w), workers))
                      for w in range(workers)]
        for link in self.links:
            link._heart = _Heart(partial(sim.cancelled, epoch, link.worker))
        self.link = ClusterLink(self.links, epoch)
        self.link.checkpoints.start = lambda: None  # these workers save no states, and a schedule shall end
        self.program = Program(self.link)
        self.link.on_hello = self.program.welcome
        views = [str(views_dir(sim.run_dir, w, workers)) for w in range(workers)]
        self.executor = Executor(self.program, self.link,
                                 lambda w: attach(views[w], OFF_LOOP_ROWS), None, REPLY_BYTES)
        begin = messages.StartServing("here", 1, tuple(views), 0, 0, 0, REPLY_BYTES, "", None,
                                      log_level=logging.getLogger().level)
        self.fronts = SimFronts(sim.fronts, loop, sim.front_ends, private_endpoint(sim.run_dir, "fronts"), begin,
                                self.executor, Sessions(self.executor))


class Simulated:
    """The machine."""

    def __init__(self, path: Path, loop: SeededLoop, workers: int, front_ends: int):
        self.loop, self.rng, self.workers, self.front_ends = loop, loop.rng, workers, front_ends
        self.run_dir, self.data_dir = path / "run", path / "data"
        private_endpoint(self.run_dir)
        self.data_dir.mkdir()
        self.processes: dict[int, SimProcess] = {}
        self.meshes: dict[int, SimMesh] = {}
        self.fronts: dict[int, SimFront] = {}
        self.life: Life | None = None
        self.mortal = 0.0
        self.notes: list[str] = []
        self.epoch = 0
        loop.others = self.happens

    def note(self, text: str) -> None:
        self.notes.append(f"{self.loop.now:.2f} {text}")

    # ------------------------------------------------------------ what can happen
    def happens(self) -> list[Happens]:
        found: list[Happens] = [p.turn for p in self.processes.values() if p.can()]
        for mesh in self.meshes.values():
            found += mesh.broken()
        if self.life is not None:
            found += [lambda w=w: self._spawn(w) for w in range(self.workers)
                      if wire.socket_path(self.life.configs[w].endpoint) in self.loop.listening
                      and (w not in self.processes or not self.processes[w].alive
                           or self.processes[w].config.epoch < self.life.epoch)]
        return found

    def _spawn(self, w: int) -> None:
        assert self.life is not None
        config, old = self.life.configs[w], self.processes.get(w)
        if old is not None and old.alive:
            if self.rng.random() < 0.5:
                fenced(config)
                while self.rng.random() < 0.5 and old.can():
                    try:
                        old.turn()
                    except Fenced:
                        break
            old.kill()
        self.processes[w] = SimProcess(config, self.loop, self.meshes, self.note)
        self.processes[w].mortal = self.mortal
        self.note(f"worker {w} starts, incarnation {self.processes[w].incarnation}")

    def cancelled(self, epoch: int, w: int, incarnation: int, number: int) -> None:
        """Only a controller that lives says so, and only who was asked hears it."""
        process = self.processes.get(w)
        if self.life is not None and self.life.epoch == epoch and process and process.incarnation == incarnation:
            process.unwanted.add(number)

    # ------------------------------------------------------------ life and death
    async def start(self) -> None:
        """Returns when clients are served."""
        self.epoch += 1
        self.note(f"server {self.epoch} starts")
        context = copy_context()
        context.run(PROCESS.set, self.epoch)
        await asyncio.create_task(self._serve(), context=context)

    async def _serve(self) -> None:
        life = self.life = Life(self, self.epoch)
        await life.link.start()
        await life.link.up()
        await life.fronts.start()

    def kill(self, w: int) -> None:
        process = self.processes.get(w)
        if process is not None and process.alive:
            self.note(f"worker {w} dies")
            process.kill()

    def freeze(self, w: int) -> None:
        if w in self.processes:
            self.note(f"worker {w} is frozen")
            self.processes[w].frozen = True

    def be_mortal(self, chance: float) -> None:
        self.mortal = chance
        for p in self.processes.values():
            p.mortal = chance

    async def die(self) -> None:
        """The controller, in the middle of whatever it does, and its front ends with it."""
        life, self.life = self.life, None
        assert life is not None
        self.note(f"server {life.epoch} dies")
        fronts = list(life.fronts.running)
        self.loop.listening.clear()
        for link in life.links:
            if link.peer is not None:
                transport: Any = link.peer.transport
                transport.die()
            link._timer.cancel()
        for end in list(self.loop.ends):
            if isinstance(end, AsyncEnd) and not any(f._transport is end for f in fronts):
                end.die()
        for f in fronts:
            f._ended.set()
            f.die()
        for task, process in list(self.loop.tasks.items()):
            if process == life.epoch:
                task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)

    def stop(self) -> None:
        self.life = None
        for p in self.processes.values():
            p.kill()


