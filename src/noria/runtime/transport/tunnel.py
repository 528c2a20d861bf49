"""Tunnels between hosts: one process on each host carries connections between workers and server. It does not
read packets.

Front end, workers and mesh use Unix sockets in their run directory, where the kernel identifies the other end. A
worker on another host has its own run directory, and a tunnel beside it. The tunnel opens a socket there for each
remote process. Each connection to such a socket becomes one over TCP (`handshake.py`), which the tunnel at the
other end connects to the real socket:

    worker 1 → peer-0.sock → its tunnel ══ TCP ══ the server's tunnel → peer-0.sock → worker 0

The server's tunnel knows all tunnels. Each one reports which worker it serves and where it listens (`serve`), and
receives the addresses of all others whenever they change. When that connection ends, the worker's tunnel ends,
and with it the worker.

Keeps true: bytes arrive in order, or the connection ends at both ends. A connection to a worker that cannot be
reached now is held, and closed when the worker can be reached. Its opener then opens another one, which goes
through: so a channel begins with its first byte, and nobody else need try again. A tunnel ends with the process
that started it and leaves no file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from noria.runtime.transport import handshake
from noria.runtime.transport.handshake import (
    ConnectionRefused,
    HandshakeClosed,
    NotAuthenticated,
    SharedCredentials,
    Streams,
)

CHUNK_BYTES = handshake.READ_BYTES
RETRY_S = 0.2  # between two tries to reach a worker
REACH_S = 5.0  # how long the server's tunnel may be down or overloaded when a worker starts
FRONTS = "fronts.sock"  # where the server hears its front ends
MOST_UNPROVED = 256  # connections at a time; asyncio accepts up to 100 at once
_LINK, _PEER = re.compile(r"link(-\d{1,4})?"), re.compile(r"peer-(\d{1,4})")
Address = tuple[str, int]
_Failed = (OSError, NotAuthenticated, ConnectionRefused, TimeoutError, asyncio.IncompleteReadError)


@dataclass(frozen=True)
class TunnelSettings:
    """The settings of a tunnel. `host`, `port`: where it listens. `hub`: the server's tunnel; None: it is this
    one. `worker`, `link`: the worker it serves, and the name of its link's socket. `remove`: remove the run
    directory at the end."""

    run_dir: Path
    workers: int
    host: str
    port: int
    credentials: SharedCredentials
    hub: Address | None = None
    worker: int = -1
    link: str = ""
    remove: bool = False

    def dump(self) -> str:
        b = self.credentials
        return json.dumps({**self.__dict__, "run_dir": str(self.run_dir), "credentials": [
            b.secret.hex(), b.certificate and str(b.certificate), b.key and str(b.key)]})

    @staticmethod
    def load(text: str) -> TunnelSettings:
        values = json.loads(text)
        secret, certificate, key = values.pop("credentials")
        credentials = SharedCredentials(bytes.fromhex(secret), certificate and Path(certificate), key and Path(key))
        hub = values.pop("hub")
        return TunnelSettings(Path(values.pop("run_dir")), credentials=credentials, hub=hub and (hub[0], hub[1]),
                              **values)


@dataclass(frozen=True)
class _Socket:
    """A socket that represents a worker on another host. `inode`: of the path, while it is this socket's."""

    path: Path
    inode: int
    server: asyncio.Server


class Tunnel:
    """One tunnel, at the server or at a worker. `note`: writes a line to the log."""

    def __init__(self, settings: TunnelSettings, note: Callable[[str], None]):
        self._settings, self._note = settings, note
        self._where: dict[int, Address] = {}  # the tunnels of workers
        self._here: dict[int, _Socket] = {}  # of workers elsewhere
        self._known: dict[int, asyncio.StreamWriter] = {}  # at the hub: receivers of the addresses
        self._unproved: dict[asyncio.Task[Any], str] = {}  # unproved connections, with hosts, oldest first
        self._tasks: set[asyncio.Task[Any]] = set()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def start(self) -> int:
        """Start to listen; returns the port."""
        settings = self._settings
        handshake.tls(settings.credentials, server=True)  # now, and not only at the first connection
        self._server = await asyncio.start_server(self._each(self._accepted), settings.host, settings.port,
                                                  limit=CHUNK_BYTES)
        port: int = self._server.sockets[0].getsockname()[1]
        if settings.hub is not None:
            await self._register(settings.hub, port)
            link = settings.run_dir / settings.link
            self._link = await asyncio.start_unix_server(self._each(self._to_link), link, limit=CHUNK_BYTES)
        return port

    async def close(self) -> None:
        self._server.close()
        for worker in list(self._here):
            self._shut(worker)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _soon(self, doing: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in a task that ends with the tunnel."""
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _each(self, does: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
              ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        """A callback that runs `does` for each accepted connection."""
        return lambda reader, writer: self._soon(does(reader, writer))

    # ------------------------------------------------------------ who is where
    async def _register(self, hub: Address, port: int) -> None:
        """Report this tunnel to the server's, and receive the addresses of the others from then on."""
        wish = f"serve {self._settings.worker} {port}".encode()
        tries = int(REACH_S / RETRY_S)
        while True:
            try:
                reader, writer = await handshake.connected(*hub, self._settings.credentials, wish)
                break
            except (OSError, HandshakeClosed):  # it may be about to be started again
                tries -= 1
                if not tries:
                    raise
                await asyncio.sleep(RETRY_S)
        await self._hear(json.loads(await reader.readline()))
        self._soon(self._listen(reader, writer))

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                await self._hear(json.loads(line))
        except _Failed as e:
            self._end(f"the connection to the server broke: {e}")
        finally:
            writer.transport.abort()
            self._end("the server has closed the connection")

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)

    async def _hear(self, where: dict[str, list[Any]]) -> None:
        """Apply the addresses of all tunnels. Workers without a tunnel are at the server."""
        assert self._settings.hub is not None
        hub = self._settings.hub
        self._where = {w: hub for w in range(self._settings.workers) if w != self._settings.worker}
        self._where |= {int(w): (host, port) for w, (host, port) in where.items() if int(w) != self._settings.worker}
        for worker in self._where:
            if worker not in self._here:
                await self._open(worker)

    async def _serve(self, worker: int, port: int, streams: Streams) -> None:
        """At the server's tunnel: register a worker's tunnel for as long as the connection lasts."""
        reader, writer = streams
        before = self._known.pop(worker, None)
        if before is not None:  # another life of it
            before.transport.abort()
            self._shut(worker)
        host = writer.get_extra_info("peername")[0]
        self._known[worker], self._where[worker] = writer, (host, port)
        self._note(f"worker {worker} is reached at {host}:{port}")
        await self._open(worker)
        handshake.granted(writer, True)
        self._send_addresses()
        with contextlib.suppress(*_Failed):
            await reader.read(1)  # it sends nothing more
        if self._known.get(worker) is writer:
            del self._known[worker], self._where[worker]
            self._shut(worker)
            self._send_addresses()

    def _send_addresses(self) -> None:
        """Send the addresses of all tunnels to each worker's tunnel."""
        line = json.dumps(self._where).encode() + b"\n"
        for writer in self._known.values():
            writer.write(line)

    # ------------------------------------------------------------ sockets here of workers elsewhere
    async def _open(self, worker: int) -> None:
        path = self._settings.run_dir / f"peer-{worker}.sock"
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of a worker that was here
        server = await asyncio.start_unix_server(self._each(partial(self._to_peer, worker)), path, limit=CHUNK_BYTES)
        self._here[worker] = _Socket(path, path.stat().st_ino, server)

    def _shut(self, worker: int) -> None:
        """Close the socket of a remote worker. Keeps the path if a worker on this host has its own socket there
        by now."""
        socket = self._here.pop(worker)
        with contextlib.suppress(OSError):
            if socket.path.stat().st_ino == socket.inode:
                socket.path.unlink()
        socket.server.close()

    async def _to_link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry the worker's connections to the front end. If one cannot be made, the worker ends."""
        assert self._settings.hub is not None
        try:
            there = await handshake.connected(*self._settings.hub, self._settings.credentials,
                                              f"link {self._settings.link}".encode())
        except _Failed as e:
            self._note(f"worker {self._settings.worker} does not reach the server: {e}")
            writer.transport.abort()
            return
        await _joined((reader, writer), there)

    async def _to_peer(self, worker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await self._reached(worker)
        if there is not None:
            await _joined((reader, writer), there)
            return
        closed = asyncio.create_task(_drained(reader))
        while there is None and not closed.done():
            await asyncio.wait((closed,), timeout=RETRY_S)
            there = await self._reached(worker)
        closed.cancel()
        if there is not None:
            there[1].transport.abort()
        writer.transport.abort()  # received bytes are lost: another connection goes through

    async def _reached(self, worker: int) -> Streams | None:
        address = self._where.get(worker)
        if address is None:
            return None
        try:
            return await handshake.connected(*address, self._settings.credentials, f"peer {worker}".encode())
        except _Failed:
            return None

    # ------------------------------------------------------------ from elsewhere
    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        try:
            self._unproved[me] = (writer.get_extra_info("peername") or ("",))[0]
            self._make_room()
            try:
                if (tls := handshake.tls(self._settings.credentials, server=True)) is not None:
                    # By us, not by asyncio, so that a stalled TLS handshake counts as unproved.
                    await writer.start_tls(tls, ssl_handshake_timeout=handshake.PROOF_S)
                wish = await handshake.wish_of(reader, writer, self._settings.credentials)
            except asyncio.CancelledError:
                writer.transport.abort()
                raise
            finally:
                self._unproved.pop(me, None)
            await self._grant(wish.decode().split(" "), (reader, writer))
        except NotAuthenticated as e:
            self._note(f"refused a connection of {writer.get_extra_info('peername')}: {e}")
        except _Failed:
            pass
        finally:
            writer.close()

    def _make_room(self) -> None:
        """Close the oldest unproved connection of the host that has most of them. An authorised process proves
        itself within a millisecond, so silent connections keep nobody out, least of all other hosts."""
        if len(self._unproved) > MOST_UNPROVED:
            ((most, _),) = Counter(self._unproved.values()).most_common(1)
            oldest = next(task for task, host in self._unproved.items() if host == most)
            del self._unproved[oldest]
            oldest.cancel()

    async def _grant(self, wish: list[str], there: Streams) -> None:
        if self._settings.hub is None and wish[0] == "serve" and 0 <= int(wish[1]) < self._settings.workers:
            await self._serve(int(wish[1]), int(wish[2]), there)
            return
        try:
            here = await asyncio.open_unix_connection(self._path(wish))
        except OSError:
            handshake.granted(there[1], False)
            await there[1].drain()
            return
        handshake.granted(there[1], True)
        await _joined(here, there)

    def _path(self, wish: list[str]) -> Path:
        """The socket of a process on this host; OSError if there is none."""
        what, name = wish
        if what == "link" and self._settings.hub is None and _LINK.fullmatch(name):
            return self._settings.run_dir / name
        if what == "front" and self._settings.hub is None:
            return self._settings.run_dir / FRONTS
        if what == "peer" and _PEER.fullmatch(f"peer-{name}") and int(name) not in self._here:
            return self._settings.run_dir / f"peer-{name}.sock"
        raise FileNotFoundError(f"there is no {what} {name} here")


async def _joined(one: Streams, other: Streams) -> None:
    """Copy bytes between two connections until one ends; then both end."""
    pumps = [asyncio.create_task(_pumped(one[0], other[1])), asyncio.create_task(_pumped(other[0], one[1]))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for _, writer in (one, other):
            writer.close()  # after flushing, so that a goodbye arrives


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(*_Failed):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()


async def _drained(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(*_Failed):
        while await reader.read(CHUNK_BYTES):
            pass


# ---------------------------------------------------------------- the process
async def _run(settings: TunnelSettings) -> str:
    tunnel = Tunnel(settings, _note)
    try:
        port = await tunnel.start()
    except _Failed as e:
        print(f"failed {e}", flush=True)
        return str(e)
    print(f"ready {port}", flush=True)
    loop = asyncio.get_running_loop()
    life = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(life), sys.stdin)
    parent = asyncio.ensure_future(_drained(life))
    await asyncio.wait((parent, tunnel.ended), return_when=asyncio.FIRST_COMPLETED)
    parent.cancel()
    await tunnel.close()
    return tunnel.ended.result() if tunnel.ended.done() else ""


def _note(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def main() -> None:
    settings = TunnelSettings.load(sys.stdin.readline())
    os.umask(0o077)
    try:
        asyncio.run(_run(settings))
    finally:
        if settings.remove:
            shutil.rmtree(settings.run_dir, ignore_errors=True)


if __name__ == "__main__":
    main()
