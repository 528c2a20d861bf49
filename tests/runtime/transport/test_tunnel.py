"""Connections between hosts: authentication, and the guarantees of a channel that breaks."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from noria.core.types import INT, Field
from noria.runtime.transport import handshake, tunnel
from noria.runtime.transport.handshake import ConnectionRefused, NotAuthenticated, SharedCredentials
from noria.runtime.transport.tunnel import Tunnel, TunnelSettings
from noria.runtime.worker.frontier import Frontier, FrontierReader, frontier_path
from noria.runtime.worker.remote_hosts import CannotTunnel, ServerTunnel, forgotten, local_config
from noria.runtime.worker.worker_main import WorkerConfig, link_endpoint, views_dir
from noria.state.symbols.symbols import SymbolTable
from noria.storage.rocks.errors import StoreError
from noria.views.reader import attach
from noria.views.writer import ViewDirectory
from runtime.certificates import certificate
from runtime.processes import run, spawn, within

SECRET = SharedCredentials(b"s" * 32)


class Host:
    """A tunnel in this process, and the sockets of the processes beside it."""

    def __init__(self, place: Path, hub: tuple[str, int] | None = None, worker: int = -1,
                 credentials: SharedCredentials = SECRET):
        place.mkdir(mode=0o700)
        self.place, self.said = place, list[str]()
        settings = TunnelSettings(place, 3, "127.0.0.1", 0, credentials, hub, worker, f"link-{worker}")
        self.tunnel = Tunnel(settings, self.said.append)

    async def start(self) -> tuple[str, int]:
        return "127.0.0.1", await self.tunnel.start()

    async def listens(self, name: str) -> asyncio.Queue[handshake.Streams]:
        """Connections to a socket of this host."""
        accepted: asyncio.Queue[handshake.Streams] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.put_nowait((reader, writer))

        await asyncio.start_unix_server(accept, self.place / name)
        return accepted

    async def opens(self, name: str) -> handshake.Streams:
        return await asyncio.open_unix_connection(self.place / name)


@asynccontextmanager
async def hosts(path: Path, credentials: SharedCredentials = SECRET) -> AsyncIterator[tuple[Host, Host, Host]]:
    """The hosts of the server, of worker 1 and of worker 2; worker 0 is on the server's host."""
    server = Host(path / "s", credentials=credentials)
    hub = await server.start()
    one, two = Host(path / "1", hub, 1, credentials), Host(path / "2", hub, 2, credentials)
    await one.start()
    await two.start()
    try:
        yield server, one, two
    finally:
        for host in (one, two, server):
            await host.tunnel.close()


@pytest.mark.parametrize("secured", [False, True])
def test_every_way_between_three_hosts(tmp_path: Path, secured: bool) -> None:
    async def test() -> None:
        credentials = SharedCredentials(b"x" * 32, *certificate(tmp_path, "ours")) if secured else SECRET
        async with hosts(tmp_path, credentials) as (server, one, two):
            there_are = {name: await of.listens(name) for of, name in (
                (server, "link-1"), (server, "peer-0.sock"), (one, "peer-1.sock"), (two, "peer-2.sock"))}
            for at, name in ((one, "link-1"), (one, "peer-0.sock"), (two, "peer-1.sock"), (one, "peer-2.sock"),
                             (server, "peer-2.sock")):
                came = there_are[name]
                reader, writer = await at.opens(name)
                there = await within(came.get())
                much = os.urandom(3_000_000)
                writer.write(much)
                assert await within(there[0].readexactly(len(much))) == much
                there[1].write(b"back")
                assert await within(reader.readexactly(4)) == b"back"
                there[1].write(b"bye")
                there[1].close()
                assert await within(reader.read()) == b"bye"  # the last bytes arrive before the end
                writer.close()

    run(test)


def test_a_channel_begins_with_its_first_byte(tmp_path: Path) -> None:
    """A worker that starts late misses nothing: the connection that waited for it ends, and the next one reaches it."""
    async def test() -> None:
        async with hosts(tmp_path) as (_, one, two):
            held = asyncio.Event()
            reached = one.tunnel._reached

            async def tried(worker: int) -> handshake.Streams | None:
                there = await reached(worker)
                held.set()
                return there

            one.tunnel._reached = tried
            reader, writer = await one.opens("peer-2.sock")
            writer.write(b"lost")
            await within(held.wait())
            came = await two.listens("peer-2.sock")
            assert await within(reader.read()) == b""
            reader, writer = await one.opens("peer-2.sock")
            writer.write(b"first")
            assert await within(_said(came)) == b"first"
            await two.tunnel.close()
            assert await within(reader.read()) == b""

    async def _said(came: asyncio.Queue[handshake.Streams]) -> bytes:
        """The bytes of the first connection that has some; the tunnel opens an empty one to try."""
        while not (said := await (await came.get())[0].read(5)):
            pass
        return said

    run(test)


def test_a_connection_without_the_secret_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        server = Host(tmp_path / "s")
        host, port = await server.start()
        came = await server.listens("link-1")
        with pytest.raises(NotAuthenticated, match="does not know the secret"):
            await handshake.connected(host, port, SharedCredentials(b"t" * 32), b"link link-1")
        for sent in (b"", b"GET / HTTP/1.1\r\n\r\n" * 9, b"\x16\x03\x01" * 40, handshake.MAGIC + bytes(32) + bytes(34)):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(sent)
            writer.write_eof()
            left = await within(reader.read())
            assert len(left) in (0, 64), "no more than a number and a proof of the server's own"
            writer.close()
        for wish in (b"link ../x", b"link link-1/../../x", b"peer 7", b"link front.sock", b"peer x", b"front clients"):
            with pytest.raises(ConnectionRefused):
                await handshake.connected(host, port, SECRET, wish)
        assert came.empty()
        assert any("does not know the secret" in s for s in server.said)
        await server.tunnel.close()

    run(test)


def test_a_proof_is_valid_once(tmp_path: Path) -> None:
    """The recorded bytes of one connection do not open another one."""
    async def test() -> None:
        server = Host(tmp_path / "s")
        host, port = await server.start()
        came = await server.listens("link-1")
        sent: list[bytes] = []

        async def between_them(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection(host, port)
            sent.append(await reader.read(4096))
            there[1].write(sent[0])
            writer.write(await there[0].readexactly(64))
            sent.append(await reader.read(4096))
            there[1].write(sent[1])
            writer.write(await there[0].readexactly(1))

        spy = await asyncio.start_server(between_them, "127.0.0.1", 0)
        await handshake.connected("127.0.0.1", spy.sockets[0].getsockname()[1], SECRET, b"link link-1")
        await within(came.get())
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"".join(sent))
        assert len(await within(reader.read())) == 64 and came.empty()
        await server.tunnel.close()

    run(test)


def test_silent_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "PROOF_S", 0.2)
    monkeypatch.setattr(tunnel, "MOST_UNPROVED", 3)

    async def test() -> None:
        server = Host(tmp_path / "s")
        host, port = await server.start()
        silent = [await asyncio.open_connection(host, port) for _ in range(8)]
        for reader, _ in silent:
            assert await within(reader.read()) == b""
        with pytest.raises(ConnectionRefused):
            await handshake.connected(host, port, SECRET, b"peer 0")
        await server.tunnel.close()

    run(test)


@pytest.mark.parametrize("secured", [False, True])
def test_silent_connections_exclude_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secured: bool) -> None:
    """The oldest unproved connection of the host with the most is closed, before its proof or its TLS handshake."""
    monkeypatch.setattr(tunnel, "MOST_UNPROVED", 5)
    credentials = SharedCredentials(SECRET.secret, *certificate(tmp_path, "ours")) if secured else SECRET

    async def test() -> None:
        server = Host(tmp_path / "s", credentials=credentials)
        host, port = await server.start()
        slow = await asyncio.open_connection(host, port)
        silent = [await asyncio.open_connection(host, port, local_addr=("127.0.0.2", 0)) for _ in range(8)]
        for reader, _ in silent[:4]:
            with suppress(ConnectionError):
                assert await within(reader.read()) == b""
        with pytest.raises(ConnectionRefused):  # authenticated, but worker 0 is down
            await handshake.connected(host, port, credentials, b"peer 0")
        if secured:
            await slow[1].start_tls(cast(ssl.SSLContext, handshake.tls(credentials, server=False)))
        slow[1].write(handshake.MAGIC + bytes(32))
        assert len(await within(slow[0].readexactly(64))) == 64
        assert not server.said, "a line of the log for each would fill it"
        await server.tunnel.close()

    run(test)


def test_a_worker_whose_connection_is_cut_tries_again(tmp_path: Path) -> None:
    """With a wrong secret it fails at once."""
    async def test() -> None:
        server = Host(tmp_path / "s")
        address = await server.start()
        cut: list[asyncio.StreamWriter] = []

        async def beset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(cut) < 2:
                cut.append(writer)
                await reader.readexactly(len(handshake.MAGIC))
                writer.close()
                return
            there = await asyncio.open_connection(*address)
            await tunnel._joined((reader, writer), there)

        between_them = await asyncio.start_server(beset, "127.0.0.1", 0)
        hub = between_them.sockets[0].getsockname()[:2]
        with pytest.raises(NotAuthenticated, match="does not know the secret"):
            await Host(tmp_path / "2", address, 2, SharedCredentials(b"t" * 32)).start()
        one = Host(tmp_path / "1", hub, 1)
        await within(one.start())
        assert len(cut) == 2 and any("worker 1 is reached" in s for s in server.said)
        await one.tunnel.close()
        await server.tunnel.close()

    run(test)


def test_another_certificate_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        ours, others = (SharedCredentials(SECRET.secret, *certificate(tmp_path, n)) for n in ("ours", "others"))
        server = Host(tmp_path / "s", credentials=ours)
        host, port = await server.start()
        came = await server.listens("link-1")
        for wrong in (others, SECRET):
            with pytest.raises((NotAuthenticated, TimeoutError, ConnectionError)):
                await handshake.connected(host, port, wrong, b"link link-1")
        assert came.empty()
        await handshake.connected(host, port, ours, b"link link-1")
        await within(came.get())
        await server.tunnel.close()

    run(test)


def test_a_certificate_is_replaced_during_operation(tmp_path: Path) -> None:
    async def test() -> None:
        ours = SharedCredentials(SECRET.secret, *certificate(tmp_path, "ours"))
        server = Host(tmp_path / "s", credentials=ours)
        host, port = await server.start()
        came = await server.listens("link-1")
        certificate(tmp_path, "ours")
        await handshake.connected(host, port, ours, b"link link-1")
        await within(came.get())
        assert not server.said
        await server.tunnel.close()

    run(test)


def test_an_invalid_certificate_is_reported_by_its_owner(tmp_path: Path) -> None:
    """The host with the file reports the error."""
    readable = certificate(tmp_path, "readable")
    readable[1].chmod(0o640)
    for files, why in ((certificate(tmp_path, "old", ends=-0.5), "is not valid since 20"),
                       (certificate(tmp_path, "new", begins=1), "is not valid before 20"),
                       (readable, f"can be read by others than its owner: chmod 600 {readable[1]}")):
        for server in (True, False):
            with pytest.raises(NotAuthenticated, match=why):
                handshake.tls(SharedCredentials(SECRET.secret, *files), server)


def test_a_missing_tls_configuration_is_reported(tmp_path: Path) -> None:
    async def test() -> None:
        server = Host(tmp_path / "s", credentials=SharedCredentials(SECRET.secret, *certificate(tmp_path, "ours")))
        with pytest.raises(handshake.HandshakeClosed,
                           match="before it proved anything: does it want TLS, --cluster-cert and"):
            await handshake.connected(*await server.start(), SECRET, b"link link-1")
        await server.tunnel.close()

    run(test)


def test_only_the_owner_may_read_the_secret(tmp_path: Path) -> None:
    made = handshake.secret_of(tmp_path)
    assert len(made) == 32 and handshake.secret_of(tmp_path) == made
    (tmp_path / "workers.secret").chmod(0o640)
    with pytest.raises(NotAuthenticated, match="its owner alone can read: remove it"):
        handshake.secret_of(tmp_path)
    for path, why in ((tmp_path / "workers.secret", "its owner alone can read: copy workers.secret"),
                      (tmp_path / "none", "none cannot be read: No such file or directory: copy workers.secret")):
        with pytest.raises(NotAuthenticated, match=why):
            handshake.secret_in(path)


def test_the_servers_tunnel_restarts(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "run").mkdir(mode=0o700)
        notes: list[str] = []
        settings = TunnelSettings(tmp_path / "run", 2, "127.0.0.1", 0, SECRET)
        hub = ServerTunnel(settings, notes.append)
        await hub.start()
        address = hub.address
        with pytest.raises(CannotTunnel, match="--cluster-port"):
            await ServerTunnel(replace(settings, port=address[1]), notes.append).start()
        hub.kill()
        while True:
            try:
                await handshake.connected(*address, SECRET, b"peer 0")
            except ConnectionRefused:
                break
            except (OSError, NotAuthenticated):
                await asyncio.sleep(0.01)
        assert any("is started again" in s for s in notes)
        await hub.close()
        with pytest.raises(OSError):
            await handshake.connected(*address, SECRET, b"peer 0")

    run(test)


def test_a_tunnel_that_cannot_be_forked_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        (tmp_path / "run").mkdir(mode=0o700)
        said: list[str] = []
        hub = ServerTunnel(TunnelSettings(tmp_path / "run", 2, "127.0.0.1", 0, SECRET), said.append)
        await hub.start()
        start, starts, again = hub._start, list[int](), asyncio.Event()

        async def started() -> None:
            starts.append(1)
            if len(starts) == 1:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            await start()
            again.set()

        monkeypatch.setattr(hub, "_start", started)
        hub.kill()
        await within(again.wait())
        assert any("Resource temporarily unavailable" in s for s in said)
        with pytest.raises(ConnectionRefused):
            await handshake.connected(*hub.address, SECRET, b"peer 0")
        await hub.close()

    run(test)


def test_where_a_worker_cannot_run(tmp_path: Path) -> None:
    nowhere = Path("/nowhere/run")
    base = WorkerConfig(1, 2, link_endpoint(nowhere, 1, 2), tmp_path / "data", nowhere, 1)
    (tmp_path / "data").mkdir()
    for config, why in ((base, "Start the server with --cluster-host"),
                        (replace(base, hub=("127.0.0.1", 1)), "does not reach the server at 127.0.0.1:1"),
                        (replace(base, hub=("127.0.0.1", 1), data_dir=nowhere), "storage that all hosts mount"),
                        (replace(base, hub=("127.0.0.1", 1), certificate=nowhere, key=nowhere), "are no certificate")):
        with pytest.raises(StoreError, match=why), local_config(config):
            pytest.fail("it runs")


def test_a_killed_worker_leaves_no_files(tmp_path: Path) -> None:
    """Its tunnel ends and removes the run directory."""
    async def test() -> None:
        server = Host(tmp_path / "s")
        (tmp_path / "data").mkdir()
        shutil.copy(_secret_file(tmp_path), tmp_path / "data")
        hub = await server.start()
        came = await server.listens("link-1")
        nowhere = Path("/nowhere/run")
        before = set(Path("/dev/shm").iterdir())
        child = spawn(WorkerConfig(1, 2, link_endpoint(nowhere, 1, 2), tmp_path / "data", nowhere, 1, hub=hub,
                                   factory="runtime.fake_worker:build"))
        await within(came.get())
        own = [p for p in set(Path("/dev/shm").iterdir()) - before if (p / "link-1").exists()]
        assert own
        child.send_signal(signal.SIGKILL)
        await asyncio.to_thread(child.wait)
        child.communicate()
        while any(p.exists() for p in own):
            await asyncio.sleep(0.01)
        await server.tunnel.close()

    run(test)


def _secret_file(path: Path) -> Path:
    file = path / "workers.secret"
    file.write_bytes(SECRET.secret)
    file.chmod(0o600)
    return file


def test_views_on_the_servers_host_are_removed_when_the_worker_moves(tmp_path: Path) -> None:
    views = views_dir(tmp_path, 1, 3)
    views.mkdir()
    view = ViewDirectory(str(views), SymbolTable(str(views)), 1).create("v", [Field("n", INT)], (0,), 1, full=True)
    view.activate()
    attached = attach(str(views)).view("v")
    assert attached.lookup((1,)) == []
    Frontier(frontier_path(tmp_path, 1), 3)((4, 5, 6))
    seen = FrontierReader(frontier_path(tmp_path, 1), 3)
    assert seen(2) == 6
    (tmp_path / "worker-1.doing").write_bytes(bytes(8))
    forgotten(tmp_path, 1, 3)
    assert seen(2) == 0 and not (tmp_path / "worker-1.doing").exists()
    assert attached.lookup((1,)) is None and not views.exists()
