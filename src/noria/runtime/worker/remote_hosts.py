"""Runs workers on other hosts than the server's: on each host, sockets in its run directory lead to the other hosts.

`ServerTunnel` is the server's tunnel (`tunnel.py`), which is restarted when it ends. A worker that starts without the
server's run directory creates its own, with a tunnel beside it (`local_config`), and runs as usual. The views it
publishes stay on its host, so the worker itself answers reads of its keys.

Keeps true: views that an earlier life of the worker published on the server's host are removed before it serves
elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from noria.runtime.transport import handshake, wire
from noria.runtime.transport.handshake import NotAuthenticated, SharedCredentials
from noria.runtime.transport.heartbeats import doing_path
from noria.runtime.transport.tunnel import TunnelSettings
from noria.runtime.worker.frontier import Frontier, frontier_path
from noria.runtime.worker.worker_main import WorkerConfig, views_dir
from noria.storage.rocks.errors import StoreError
from noria.views import files

SHARED_MEMORY = Path("/dev/shm")
AGAIN_S = 0.5  # before a tunnel that ended is started again
_COMMAND = (sys.executable, "-m", "noria.runtime.transport.tunnel")
_NEWER = "~"  # than every file's stem


class CannotTunnel(Exception):
    """The server's tunnel cannot start; the message says why."""


# ---------------------------------------------------------------- the server
class ServerTunnel:
    """The server's tunnel. In its `settings`, port 0 means any free port, which is kept over restarts. `note`:
    writes a line to the log."""

    def __init__(self, settings: TunnelSettings, note: Callable[[str], None]):
        self._settings, self._note = settings, note
        self._again: asyncio.Task[None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self._settings.host, self._settings.port

    async def start(self) -> None:
        """Start the tunnel. `CannotTunnel` if it cannot listen."""
        await self._start()
        self._again = asyncio.ensure_future(self._keep())

    async def _start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=pipe, stdout=pipe, env=_environment())
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(self._settings.dump().encode() + b"\n")
        what, _, value = (await self._process.stdout.readline()).decode().strip().partition(" ")
        if what != "ready":
            raise CannotTunnel(f"--cluster-host {self._settings.host}, --cluster-port {self._settings.port}: workers "
                               f"on other hosts could not reach the server: {value or 'its tunnel ended'}")
        self._settings = replace(self._settings, port=int(value))

    async def _keep(self) -> None:
        while True:
            code = await self._process.wait()
            self._note(f"the tunnel to workers on other hosts ended with code {code}; it is started again")
            await asyncio.sleep(AGAIN_S)
            try:
                await self._start()
            except (CannotTunnel, OSError) as e:  # there is no memory, process or file for it now
                self._note(f"the tunnel to workers on other hosts cannot be started, which is tried again: {e}")

    def kill(self) -> None:
        """Kill the tunnel, for a test of the restart."""
        self._process.kill()

    async def close(self) -> None:
        if self._again is None:
            return
        self._again.cancel()
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()


def forgotten(run_dir: Path, worker: int, workers: int) -> None:
    """Remove everything that an earlier life of the worker published on this host: it serves from another host
    now."""
    doing_path(run_dir, worker).unlink(missing_ok=True)
    if workers > 1:
        Frontier(frontier_path(run_dir, worker), workers)
    published = views_dir(run_dir, worker, workers)
    if published.is_dir():
        files.bury(str(published), _NEWER)
        shutil.rmtree(published, ignore_errors=True)


# ---------------------------------------------------------------- the worker
@contextmanager
def local_config(config: WorkerConfig) -> Iterator[WorkerConfig]:
    """Yield the worker's settings for the host it runs on. `StoreError` if it cannot run there."""
    if Path(wire.socket_path(config.endpoint)).is_socket():
        yield config
        return
    here = socket.gethostname()
    if config.hub is None:
        raise StoreError(f"Spark has placed it on {here}, where the server's run directory {config.run_dir} is not. "
                         "Start the server with --cluster-host ADDRESS, by which other hosts reach it. Or give a "
                         "--master whose workers run on the server's host, with the same mount of "
                         f"{config.run_dir.parent}")
    if not config.data_dir.is_dir():
        raise StoreError(f"Spark has placed it on {here}, where the data directory {config.data_dir} is not: it must "
                         "be storage that all hosts mount, at one path")
    own = Path(tempfile.mkdtemp(prefix="noria-", dir=SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None))
    try:
        credentials = SharedCredentials(handshake.secret_of(config.data_dir), config.certificate, config.key)
    except (NotAuthenticated, OSError) as e:
        own.rmdir()
        raise StoreError(f"on {here}: {e}") from e
    endpoint = f"ipc://{own / Path(wire.socket_path(config.endpoint)).name}"
    settings = TunnelSettings(own, config.workers, _address_towards(config.hub), 0, credentials, config.hub,
                              config.worker, Path(wire.socket_path(endpoint)).name, remove=True)
    pipe = subprocess.PIPE
    with subprocess.Popen(_COMMAND, stdin=pipe, stdout=pipe, text=True, env=_environment()) as tunnel:
        assert tunnel.stdin is not None and tunnel.stdout is not None
        print(settings.dump(), file=tunnel.stdin, flush=True)
        what, _, value = tunnel.stdout.readline().strip().partition(" ")
        try:
            if what != "ready":
                raise StoreError(f"on {here}: it does not reach the server at {config.hub[0]}:{config.hub[1]}: "
                                 f"{value or 'its tunnel ended'}")
            yield replace(config, run_dir=own, endpoint=endpoint)
        finally:
            tunnel.stdin.close()


def _address_towards(hub: tuple[str, int]) -> str:
    """This host's address as the server's host can reach it."""
    family, kind, _, _, address = socket.getaddrinfo(*hub, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])


def _environment() -> dict[str, str]:
    """The environment of a process that can import the same modules."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
