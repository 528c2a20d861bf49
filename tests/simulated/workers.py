"""A worker's process in the simulator: the real loop, turn by turn, over streams in memory, and its death anywhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from noria.core.limits import HEARTBEAT_MS
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.worker.worker import Worker
from noria.lowering.lower import Lowering
from noria.runtime.transport import wire
from noria.runtime.transport.heartbeats import RequestUnderWay, doing_path
from noria.runtime.transport.shard_owner import Fence, ShardOwner
from noria.runtime.transport.wire import FrameDecoder, FrameKind
from noria.runtime.worker.frontier import Frontier, frontier_path
from noria.runtime.worker.worker_main import FrontEndLost, WorkerConfig, WorkerLoop, views_dir
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore
from noria.views.writer import ViewDirectory
from simulated.loop import SeededLoop
from simulated.wires import End, SimMesh


class Killed(BaseException):
    """The process ends here."""


class _Front:
    """The other process, as far as a worker looks at it; it gives no sign but on the line."""

    last_signal_at = 0.0

    def sign(self) -> None:
        pass

    def goes_on(self) -> bool:
        return False


class SimLine:
    """`worker_main.FrontEndConnection`."""

    def __init__(self, end: End, config: WorkerConfig, loop: SeededLoop):
        self._end, self._config, self._loop = end, config, loop
        self._arrived: list[bytes | None] = []
        self._reader = FrameDecoder()
        self.front = self.watch = _Front()
        self.dies: Callable[[], bool] = lambda: False

    def watch_also(self, mesh: SimMesh) -> None:
        self._mesh = mesh

    def waits(self) -> bool:
        return bool(self._arrived or self._end.inbox)

    def take(self, rng: random.Random) -> None:
        for _ in range(rng.randint(0, len(self._end.inbox))):
            self._arrived.append(self._end.inbox.popleft())

    def arrived(self, wait_ms: float) -> tuple[bool, bool]:
        self.watch.last_signal_at = self._loop.time()  # a thread hears the heartbeats
        return bool(self._arrived), self._mesh.here

    def receive(self) -> list[wire.Item]:
        items: list[wire.Item] = []
        while self._arrived:
            data = self._arrived.pop(0)
            if data is None:
                if not items:
                    raise FrontEndLost("the front end has closed the connection")
                self._arrived = [None]
                break
            items += self._reader.feed(data)
        return items

    def send(self, envelopes: Any) -> None:
        for e in envelopes:
            if self.dies():
                raise Killed
            self._end.write(wire.encode(e))


class SimProcess:
    """mortal: how likely it dies at each of the places where it can, in a turn."""

    def __init__(self, config: WorkerConfig, loop: SeededLoop, meshes: dict[int, SimMesh], note: Callable[[str], None]):
        self.config, self._loop, self._rng = config, loop, loop.rng
        self.frozen, self.alive, self.mortal, self._ns = False, True, 0.0, 0
        self.unwanted: set[int] = set()
        self.incarnation = -1
        self._lineage = ShardOwner(config.shard_dir, config.epoch)
        try:
            self.incarnation = self._lineage.incarnation
            doing = RequestUnderWay(doing_path(config.run_dir, config.worker))
            self.worker = self._opened(WorkerEnvironment(self._clock, doing, self.unwanted.__contains__, note))
        except BaseException:
            self._lineage.release()
            raise
        self._end, self._pulse = End(), End()
        self.worker.engine.outages.log = None  # an operator that raises is a defect, which is to end the simulation
        self.line = SimLine(self._end, config, loop)
        path = wire.socket_path(config.endpoint)
        for end, kind in ((self._end, FrameKind.JOIN), (self._pulse, FrameKind.JOIN_PULSE)):
            loop.accept(path, end)
            end.write(wire.signal(kind, config.epoch, config.worker, self.incarnation))
        self._beat()
        self.mesh = SimMesh(meshes, config.worker, config.workers, config.epoch, self.incarnation, loop.rng)
        frontier = Frontier(frontier_path(config.run_dir, config.worker), config.workers)
        self._runs = WorkerLoop(config, self.worker, self.line, self._lineage.fence, loop.time,
                                self.mesh,
                                frontier)
        self.line.dies = self._dies
        self._deadly(self.worker.engine)
        self._runs.begin()

    def _opened(self, environment: WorkerEnvironment) -> Worker:
        config, published = self.config, views_dir(self.config.run_dir, self.config.worker, self.config.workers)
        published.mkdir(mode=0o700, parents=True, exist_ok=True)
        symbols = SymbolTable(str(published))
        store = RocksStore(str(config.shard_dir / "base"), symbols, fence=self.incarnation)
        self._store = store
        views = ViewDirectory(str(published), symbols, self.incarnation)
        return Worker(store, symbols, views, Lowering, worker=config.worker, epoch=config.epoch,
                      memory_limit=config.memory_limit, pid=1, environment=environment, workers=config.workers,
                      incarnation=self.incarnation)

    def _clock(self) -> int:
        """Each look at it takes a while, so that what is bounded in time has an end."""
        self._ns += 100_000
        return self._ns

    def _beat(self) -> None:
        if self.alive:
            if not self.frozen:
                self._pulse.write(wire.signal(FrameKind.PULSE, self.config.epoch, self.config.worker))
            self._loop.call_later(HEARTBEAT_MS / 1000, self._beat)

    # ------------------------------------------------------------ turns
    def can(self) -> bool:
        return self.alive and not self.frozen and (self.line.waits() or self.mesh.waits() or self._runs.more)

    def turn(self) -> None:
        self.line.take(self._rng)
        self.mesh.take()
        try:
            self._runs.turn()
        except (Killed, FrontEndLost):
            self.kill()
        if self._runs.end:
            self._end.write(wire.signal(FrameKind.GOODBYE, self.config.epoch, self.config.worker))
            self.kill()

    def _dies(self) -> bool:
        return self._rng.random() < self.mortal

    def _deadly(self, engine: Any) -> None:
        """Before a tick, which is after its commit, and after it, before it is told."""
        tick = engine.tick

        def ticked(*arguments: Any) -> Any:
            if self._dies():
                raise Killed
            done = tick(*arguments)
            if self._dies():
                raise Killed
            return done

        engine.tick = ticked

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self._store.close()
        self._end.cut()
        self._pulse.cut()
        self.mesh.die()
        self._lineage.release()


def fenced(config: WorkerConfig) -> None:
    """Another one is about to come: the present one is fenced."""
    Fence(config.shard_dir / "fence", config.epoch).close()
