"""Several worker processes behind one link, with all of a server above it but Spark and sockets."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from noria.control.program import Program
from noria.core.limits import OFF_LOOP_ROWS
from noria.runtime.cluster.cluster_link import ClusterLink
from noria.runtime.link.link import LinkState, WorkerLink
from noria.runtime.transport import handshake
from noria.runtime.transport.handshake import SharedCredentials
from noria.runtime.transport.shard_owner import RemoteOwner
from noria.runtime.transport.tunnel import TunnelSettings
from noria.runtime.transport.wire import private_endpoint
from noria.runtime.worker.frontier import FrontierReader, frontier_path
from noria.runtime.worker.remote_hosts import ServerTunnel, forgotten
from noria.runtime.worker.worker_main import WorkerConfig, link_endpoint, views_dir
from noria.server.answering.executor import Executor
from noria.server.outcomes import Outcome, ResultSet
from noria.server.sessions.sessions import Sessions
from noria.views.reader import attach
from runtime.fork_server import ForkedProcess
from runtime.processes import spawn, within


class Several:
    """epoch: of this front end; a later one takes the same directory over.  away: whether a worker that is started now
    has no run directory of the server, as on another host."""

    def __init__(self, path: Path, workers: int, epoch: int = 1, away: Callable[[int], bool] | None = None):
        run_dir = path / "run"
        private_endpoint(run_dir)
        ends = [link_endpoint(run_dir, w, workers) for w in range(workers)]
        self.away, self.hub, data = away or (lambda worker: False), None, path / "data"
        if away is not None:
            data.mkdir(exist_ok=True)
            self.hub = ServerTunnel(TunnelSettings(run_dir, workers, "127.0.0.1", 0,
                                                   SharedCredentials(handshake.secret_of(data))), print)
        elsewhere = RemoteOwner(lambda worker: forgotten(run_dir, worker, workers), lambda w: self.alive[w].kill())
        self.configs = [replace(WorkerConfig(w, workers, ends[w], path / "data", run_dir, epoch, spark=False),
                                lease_ms=20_000) for w in range(workers)]
        self.children: list[ForkedProcess] = []
        self.alive: dict[int, ForkedProcess] = {}
        self.ends: dict[int, int] = {}  # by worker: readable once its process has ended
        frontiers = [FrontierReader(frontier_path(run_dir, w), workers) for w in range(workers)]
        self.links = [WorkerLink(ends[w], epoch, w, frontier_of=frontiers[w],
                                 elsewhere=elsewhere) for w in range(workers)]
        self.link = ClusterLink(self.links, epoch)
        self.program = Program(self.link)
        self.link.on_hello = self.program.welcome
        self.executor = Executor(self.program, self.link,
                                 lambda w: attach(str(views_dir(run_dir, w, workers)), OFF_LOOP_ROWS), None, 0)
        self.sessions = Sessions(self.executor)

    def spawn(self, w: int) -> None:
        config = self.configs[w]
        if self.hub is not None and self.away(w):
            nowhere = Path("/nowhere/run")
            config = replace(config, run_dir=nowhere, endpoint=link_endpoint(nowhere, w, config.workers),
                             hub=self.hub.address)
        self.alive[w] = spawn(config)
        self.children.append(self.alive[w])
        self.ends[w] = os.pidfd_open(self.alive[w].pid)
        asyncio.get_running_loop().add_reader(self.ends[w], self.ended, w)

    def ended(self, w: int) -> None:
        """Start the worker again whenever it ends, connected or not, as Spark's job does."""
        self.unwatched(w)
        self.spawn(w)

    def unwatched(self, w: int) -> None:
        asyncio.get_running_loop().remove_reader(self.ends[w])
        os.close(self.ends.pop(w))

    async def lose(self, w: int) -> None:
        """Kill a worker, and do not start it again."""
        self.unwatched(w)
        self.alive[w].kill()
        while self.links[w].state is not LinkState.DOWN:
            await asyncio.sleep(0)

    async def start(self) -> None:
        await self.link.start()
        if self.hub is not None:
            await self.hub.start()
        for w in range(len(self.links)):
            self.spawn(w)
        await within(self.link.up(), 120)

    async def sql(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of the last statement, sorted."""
        outcome: Outcome = (await within(self.sessions.run(text, parameters), 60))[-1]
        return sorted(map(tuple, outcome.rows), key=str) if isinstance(outcome, ResultSet) else []

    async def stop(self) -> None:
        for w in list(self.ends):
            self.unwatched(w)
        await self.link.close()
        for child in self.children:
            try:
                await asyncio.to_thread(child.wait, 10)
            except subprocess.TimeoutExpired:
                child.kill()
            out, err = child.communicate()
            print(f"process {child.pid} ended with {child.returncode}:", (out + err).decode(errors="replace"))
        if self.hub is not None:
            await self.hub.close()

    async def die(self) -> None:
        """End like a killed front end: no worker receives a goodbye."""
        for w in list(self.ends):
            self.unwatched(w)
        for child in self.alive.values():
            child.kill()
        await self.stop()
