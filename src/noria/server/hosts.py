"""The server's end of the connections to workers on other hosts, if `--cluster-host` is set.

Keeps true: without `--cluster-host` no tunnel listens, and a worker that Spark places on another host is rejected.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from noria.control.processes.supervisor import Supervisor
from noria.runtime.transport import handshake
from noria.runtime.transport.handshake import NotAuthenticated, SharedCredentials
from noria.runtime.transport.shard_owner import RemoteOwner
from noria.runtime.transport.tunnel import TunnelSettings
from noria.runtime.worker.remote_hosts import CannotTunnel, ServerTunnel, forgotten
from noria.server.settings import Settings, SettingsError, is_loopback
from noria.spark.hosting.workers import CANCEL

log = logging.getLogger(__name__)


class ClusterHosts:
    """Starts and stops the tunnels.  run_dir: the server's."""

    def __init__(self, settings: Settings, run_dir: Path):
        self._settings, self._run_dir = settings, run_dir
        self._hub: ServerTunnel | None = None
        self._supervisor: Supervisor | None = None
        self._ending: set[asyncio.Task[Any]] = set()
        self.elsewhere = RemoteOwner(self._appeared, self._end)

    async def start(self) -> tuple[str, int] | None:
        """Listen for other hosts.  Return the address, or None without `--cluster-host`.  Raises SettingsError."""
        s = self._settings
        if not s.cluster_host:
            return None
        try:
            credentials = SharedCredentials(handshake.secret_of(s.data_dir), s.cluster_cert, s.cluster_key)
            handshake.tls(credentials, server=True)
            settings = TunnelSettings(self._run_dir, s.workers, s.cluster_host, s.cluster_port, credentials)
            self._hub = ServerTunnel(settings, log.warning)
            await self._hub.start()
        except (NotAuthenticated, CannotTunnel) as e:
            raise SettingsError(str(e)) from e
        if s.cluster_cert is None and not is_loopback(s.cluster_host):
            log.warning("--cluster-host %s: rows can be read on their way to workers on other hosts, and whoever can "
                        "change them there can run code; give --cluster-cert and --cluster-key", s.cluster_host)
        log.info("workers on other hosts reach this one at %s:%d", *self._hub.address)
        return self._hub.address

    def hosted_by(self, supervisor: Supervisor) -> None:
        """Set the supervisor that ends unreachable workers."""
        self._supervisor = supervisor

    async def close(self) -> None:
        if self._hub is not None:
            await self._hub.close()

    def _appeared(self, worker: int) -> None:
        log.info("worker %d serves from another host: reads of its keys go there", worker)
        forgotten(self._run_dir, worker, self._settings.workers)

    def _end(self, worker: int) -> None:
        if self._supervisor is not None:
            task = asyncio.ensure_future(self._supervisor.run_job(CANCEL, workers=[worker]))
            self._ending.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (why := task.exception()) is not None:
            log.warning("a worker on another host could not be ended: %s", why)
