"""The server process: the one place that wires everything, starts it in order and stops it in order.

    (with a lease: Spark driver → stand by until this server holds the lease →) claim the data directory →
    bind both ports → run directory → link → Spark driver → worker up → MySQL → HTTP → "noria ready"

Keeps true: the ready line is printed once, when statements are answered, and standard output has nothing else.  A port
that is taken is reported before a process is started, and a bound port is kept until the end.  A stop (SIGTERM, SIGINT)
accepts no new clients, lets running statements end, closes the store and ends all child processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from noria.accounts.registry import UnknownFormat
from noria.control.processes.lease_address import LeaseUnavailable
from noria.control.processes.leases import CannotClaim, Claim
from noria.control.processes.supervisor import Event, Supervisor
from noria.control.program import Program
from noria.core.errors import SqlError, codes
from noria.core.limits import DEFAULT_MEMORY_BYTES, OFF_LOOP_ROWS
from noria.core.types import TableDef
from noria.dataflow.inspect.render import size
from noria.dataflow.messages.packets import Done, Evict, Hello, Inspect, SetLimit
from noria.plan.view import ViewDef
from noria.runtime.cluster.cluster_link import ClusterLink
from noria.runtime.link.link import Link, LinkState, WorkerLink
from noria.runtime.transport.heartbeats import doing_path
from noria.runtime.transport.tunnel import FRONTS
from noria.runtime.worker.frontier import FrontierReader, frontier_path
from noria.runtime.worker.resources import raise_open_files, resident_bytes, use_arrow_without_pandas
from noria.runtime.worker.worker_main import WorkerConfig, feeds_dir, link_endpoint, views_dir
from noria.server.access.access import Access
from noria.server.access.store import AccountStore
from noria.server.answering.executor import Executor
from noria.server.answering.first_state_progress import FillRate, FirstStateProgress
from noria.server.applying import applied
from noria.server.bulk.indexes import Indexes
from noria.server.bulk.jobs import BulkJobs
from noria.server.bulk.load_permit import TOKEN_FILE, LoadPermit, make_token
from noria.server.bulk.reporting import logged
from noria.server.feeding import Feeds
from noria.server.fronts.controller import CannotServe, Fronts
from noria.server.fronts.messages import StartServing
from noria.server.hosts import ClusterHosts
from noria.server.http.app import make_app
from noria.server.http.request_filter import RequestPolicy
from noria.server.http.server import HttpServer
from noria.server.listening import CannotListen, listening, reserved
from noria.server.mysql import MysqlServer, listen
from noria.server.run_directory import make_run_dir, remove_run_dir
from noria.server.sessions.held_transactions import HeldTransactions
from noria.server.sessions.sessions import Sessions
from noria.server.settings import Settings, SettingsError, is_loopback, parse_size
from noria.server.source.checked_writes import CheckedWrites
from noria.server.source.source import SparkSource
from noria.server.standby import deposed, kept_warm, lease_of, scratch_of
from noria.server.starting import StartFailed, archive_made, warm_up, with_default_database, worker_up
from noria.server.tls import Certificates
from noria.spark.hosting.session import SparkSettings, SparkUnavailable
from noria.spark.hosting.workers import WARM
from noria.sql.text.databases import HOME, Databases
from noria.state.memory.mapped import leaving
from noria.storage.rocks.errors import StoreError
from noria.storage.tables.shards import check_workers
from noria.views.reader import attach

log = logging.getLogger("noria")
CLIENTS_STOP_S = 5  # running statements get so long to end when the server stops
WORKER_MEMORY_SHARE = 0.9  # of the limit; the rest is for kept replies
MEMORY_WATCH_S = 10  # between two checks of the memory that cannot be evicted
FILLING_S = 0.5  # /health waits so long for a worker's report of the views that it fills
SWITCH_S = 0.001  # after so long, a thread that orders or encodes many rows yields to the event loop
LEAST_LIMIT = 2**20  # the smallest memory limit, in bytes, that can be set while the server runs


def reply_bytes(limit: int) -> int:
    """Return the bytes for kept replies within a memory limit.  limit: 0 stands for DEFAULT_MEMORY_BYTES here."""
    limit = limit or DEFAULT_MEMORY_BYTES
    return limit - int(limit * WORKER_MEMORY_SHARE)


def serve(settings: Settings) -> int:
    """Run a server until SIGTERM or SIGINT.  Return the exit status."""
    os.umask(0o077)  # only the server's user may read its files
    use_arrow_without_pandas()
    logging.basicConfig(level=settings.log_level.upper(), stream=sys.stderr,
                        format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    raise_open_files()
    sys.setswitchinterval(SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings))
    except (CannotListen, CannotServe, StartFailed, CannotClaim, StoreError, SparkUnavailable, SettingsError,
            LeaseUnavailable) as e:
        print(f"noria serve: {e}", file=sys.stderr)
        return 1
    return 0


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = ServerNode(settings)
    if settings.tls_cert is not None:
        loop.add_signal_handler(signal.SIGHUP, node.reload)
    try:
        starting, stopping = asyncio.ensure_future(node.begin()), asyncio.ensure_future(stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            print(node.ready_line, flush=True)
            await stopping
        starting.cancel()
        stopping.cancel()
        log.info("stopping")
    finally:
        await node.stop()
    log.info("stopped%s: all acknowledged writes are in %s", "" if node.ready_line else " before it was ready",
             settings.data_dir)


class ServerNode:
    """A server with all its parts.  Implements `Services` of `server/http/app.py`."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.access = Access(AccountStore(settings.data_dir))
        self._closers: list[tuple[str, Callable[[], Awaitable[None] | None]]] = []
        self._worker_limit: int | None = None  # of each worker, from `set_limit`; sent again to a restarted worker
        self._warnings = 0
        self.mysql: MysqlServer | Fronts | None = None
        self.ready_line = ""
        self._progress = FillRate(time.monotonic)
        self.certificates = Certificates.of(settings.tls_cert, settings.tls_key, settings.tls_ca)

    # ------------------------------------------------------------ life
    async def begin(self) -> None:
        """Call `start`.  With a lease, wait until this server holds it."""
        lease = lease_of(self.settings)
        if lease is None:
            await self.start()
            return
        self._make_supervisor(None)
        self._closers += [("lease", lease.release), ("Spark driver", self.supervisor.stop)]
        self.settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        await warm_up(self.supervisor, None)
        workers = partial(self.supervisor.run_job, WARM, workers=self.settings.workers)
        async with kept_warm(workers):
            await lease.take()
        lease.lost.add_done_callback(deposed)
        self._closers.pop()  # `start` adds the Spark driver again, so that it ends before the directory is released
        await self.start()

    def _make_supervisor(self, sockets_dir: Path | None) -> None:
        settings = self.settings
        self.spark = SparkSettings(settings.master, settings.workers, scratch_of(settings), sockets_dir=sockets_dir,
                                   standby_slots=settings.standby_slots)
        self._spark_log = settings.data_dir / "spark.log"
        self.supervisor = Supervisor(self.spark.hosting(), log_path=self._spark_log, on_event=_log_event)

    async def start(self) -> None:
        """Start all parts in order, and register in `_closers` how to stop each.  `serve` prints the errors."""
        settings = self.settings
        claim = Claim(settings.data_dir, wrest=bool(settings.lease))
        self._closers.append(("data directory", claim.release))
        epoch = claim.next_epoch()
        self._made_password = self._begin_access()
        check_workers(settings.data_dir, settings.workers)
        ports = self._ports()
        self._fronts: Fronts | None = None
        self._permit = LoadPermit(settings.load_dirs, make_token(settings.data_dir))
        run_dir = make_run_dir(settings.data_dir, settings.run_root)
        self._closers.append(("run directory", lambda: remove_run_dir(run_dir)))
        self.run_dir, several = run_dir, settings.workers
        hosts = ClusterHosts(settings, run_dir)
        hub = await hosts.start()
        self._closers.append(("tunnel", hosts.close))
        self.links = [WorkerLink(link_endpoint(run_dir, w, several), epoch, w, note=log.info,
                                 doing=doing_path(run_dir, w),
                                 frontier_of=FrontierReader(frontier_path(run_dir, w), several),
                                 elsewhere=hosts.elsewhere)
                      for w in range(several)]
        self.link: Link = self.links[0] if several == 1 else ClusterLink(self.links, epoch)
        self.link.on_hello = self._hello
        self.program = Program(self.link)
        await self.link.start()
        worker_bytes = int(settings.memory_bytes * WORKER_MEMORY_SHARE) // several
        workers = WorkerConfig(0, several, self.links[0].endpoint, settings.data_dir, run_dir, epoch,
                               memory_limit=worker_bytes, hub=hub, certificate=settings.cluster_cert,
                               key=settings.cluster_key)
        if not settings.lease:
            self._make_supervisor(run_dir / "spark")
        self.batch = Supervisor(self.spark.batch(), log_path=self._spark_log, on_event=_log_event, name="batch")
        self._closers.append(("Spark driver", self.supervisor.stop))
        self._closers.append(("Spark batch driver", self.batch.stop))
        self._closers.append(("worker", self.link.close))
        self.bulk = BulkJobs(self.batch, self.link, self.program, settings.data_dir / "snapshots", several)
        self._closers.append(("snapshots", self.bulk.snapshots.close))
        self.program.first_states.bootstrap = self.bulk.bootstrap
        self.program.rewriting.rewriter = self.bulk
        self.executor = Executor(self.program, self.link,
                                 lambda w: attach(str(views_dir(run_dir, w, several)), OFF_LOOP_ROWS), self.bulk,
                                 reply_bytes(settings.memory_bytes) if settings.front_ends == 1 else 0)
        self.sessions = Sessions(self.executor, self.access)
        self.sessions.held.idle_s, self.guard = settings.transaction_idle_s, self.sessions.guard
        self.feeds = Feeds(self.program, feeds_dir(workers), self.sessions.run)
        checked = CheckedWrites(self.sessions, self.program.catalog.databases)
        self.bulk.hold, self.program.foreign_keys.loaded = checked.hold, self.bulk.stored
        self._source = SparkSource(self.executor, self.bulk, self.link, settings.data_dir / "snapshots",
                                   lambda text: self.sessions.run(text, [], database=HOME),
                                   checked)
        self._closers.append(("reads of Spark's source", self._source.close))
        hosts.hosted_by(self.supervisor)
        self.supervisor.host(workers)
        if not settings.lease:
            await warm_up(self.supervisor, run_dir)
        await worker_up(self.link, self.links, self.supervisor)
        await with_default_database(self.program, settings.database)
        await self._source.follows.recover()
        self.feeds.sweep()
        (self.batch.start_when_needed if settings.batch_spark == "when-needed" else self.batch.start_soon)()
        watching = asyncio.ensure_future(self._watch_memory())
        self._closers.append(("watch over memory", lambda: _stopped(watching)))
        archiving = asyncio.ensure_future(archive_made(self._spark_log))
        self._closers.append(("class archive", lambda: _stopped(archiving)))
        for link in self.links:
            indexing = asyncio.ensure_future(Indexes(self.bulk, link).run())
            self._closers.append(("making of indexes", partial(_stopped, indexing)))
        await self._listen(*ports)

    def _begin_access(self) -> str:
        """Read the accounts.  Return the password of a new administrator, else ""."""
        network = not all(map(is_loopback, (self.settings.mysql_host, self.settings.http_host)))
        try:
            return self.access.begin(self.settings.user, self.settings.password, network)
        except UnknownFormat as e:
            raise StartFailed(str(e)) from None

    def _ports(self) -> tuple[socket.socket, socket.socket]:
        """Bind the ports of MySQL and HTTP.  Clients can connect from now on, and wait until the server serves."""
        settings, found = self.settings, []
        for name, host, port in (("mysql", settings.mysql_host, settings.mysql_port),
                                 ("http", settings.http_host, settings.http_port)):
            take = reserved if name == "mysql" and settings.front_ends > 1 else listening
            found.append(take(host, port, f"--{name}-host, --{name}-port"))
            self._closers.append((f"port of {name}", found[-1].close))
            if self.certificates is None and not is_loopback(host):
                log.warning("--%s-host %s: other hosts can connect, and what they send, passwords too, can be read on "
                            "the way; give --tls-cert and --tls-key", name, host)
        return found[0], found[1]

    def reload(self) -> None:
        """Read the certificate again."""
        if self.certificates is not None:
            self.certificates.reload()
        if self._fronts is not None:
            self._fronts.reload()

    async def _listen(self, mysql: socket.socket, http: socket.socket) -> None:
        settings = self.settings
        self._closers.append(("MySQL clients", self._stop_mysql))
        if settings.front_ends > 1 or settings.cluster_host:
            self._fronts = self._made_fronts(*mysql.getsockname()[:2])
            await self._fronts.start()
        if self._fronts is not None and settings.front_ends > 1:
            self.mysql = self._fronts
        else:
            server = self.mysql = await listen(mysql, self.sessions, self.access.logins(), None, self.certificates,
                                               settings.tls_require, guard=self.guard)
            self.access.on_change.append(lambda: server.admit(self.access.logins()))
        self.sessions.processes.hang_up = self._hang_up
        policy = RequestPolicy.of([*settings.http_names, settings.http_host], settings.tls_require)
        self.http = HttpServer(make_app(self, policy), self.certificates)
        await self.http.start(http)
        self._closers += [("HTTP", self.http.stop), ("feeds", self.feeds.close)]
        made = self._made_password and f" administrator={settings.user} password={self._made_password}"
        self.ready_line = (f"noria ready mysql={_address(self.mysql.address)} http={_address(self.http.address)}"
                           f"{FillRate.line(await self._filling())}{made}")

    def _made_fronts(self, host: str, port: int) -> Fronts:
        settings, several = self.settings, self.settings.workers
        views = tuple(str(views_dir(self.run_dir, w, several)) for w in range(several))
        begin = StartServing(host, port, views, 0, 0, 0, reply_bytes(settings.memory_bytes) // settings.front_ends,
                             self.access.logins(), settings.tls_cert, settings.tls_key, settings.tls_require,
                             settings.tls_ca, logging.getLogger().level)
        near = settings.front_ends if settings.front_ends > 1 else 0
        return Fronts(near, f"ipc://{self.run_dir / FRONTS}", begin, self.executor, self.sessions)

    def _hang_up(self, number: int) -> bool:
        return any(front.hang_up(number) for front in (self.mysql, self._fronts) if front is not None)

    async def stop(self) -> None:
        """Stop the started parts in reverse order."""
        while self._closers:
            what, close = self._closers.pop()
            try:
                done = close()
                if done is not None:
                    await done
            except Exception:
                log.exception("stopping the %s failed", what)

    async def _stop_mysql(self) -> None:
        all_fronts = [front for front in (self.mysql, self._fronts) if front is not None]
        for front in all_fronts:
            front.close()
        try:
            await asyncio.wait_for(asyncio.gather(*(f.wait_closed() for f in all_fronts)), CLIENTS_STOP_S)
        except TimeoutError:
            for front in all_fronts:
                front.abort()
            if self._fronts is not None:
                await self._fronts.wait_closed()

    async def _hello(self, hello: Hello) -> None:
        await self.program.welcome(hello)
        if self._worker_limit is not None:
            await self.link.recover(SetLimit(self._worker_limit))

    # ------------------------------------------------------------ the services of HTTP
    async def _filling(self) -> list[FirstStateProgress]:
        """Return the progress of views without a first state; [] if no worker reports within FILLING_S."""
        if self.link.state is not LinkState.UP:
            return []
        with contextlib.suppress(ConnectionError, TimeoutError, SqlError):
            return self._progress.progress_of(await asyncio.wait_for(self.executor.builds(), FILLING_S))
        return []

    async def health(self) -> dict[str, Any]:
        filling = [f.as_json() for f in await self._filling()]
        up = self.link.state is LinkState.UP
        pids = [0 if link.hello is None else link.hello.pid for link in self.links]
        return {"status": "ok" if up else "recovering", "worker": self.link.state.value, "spark": self.supervisor.state,
                "worker_pid": pids[0], "worker_pids": pids,
                "front_end_pids": (self._fronts.pids() if self._fronts is not None else []) or [os.getpid()],
                "filling": filling, "why": "" if up else self.link.why}

    async def stats(self) -> dict[str, Any]:
        numbers = self.executor.stats() | self.guard.numbers
        fronts = {front for front in (self.mysql, self._fronts) if front is not None}
        numbers.update(connections=sum(len(front.connections) for front in fronts),
                       worker_restarts_total=self._restarts(),
                       worker_up=int(self.link.state is LinkState.UP), front_memory=resident_bytes(os.getpid()),
                       spark_memory=sum(map(resident_bytes, (*self.supervisor.processes(), *self.batch.processes()))),
                       memory_warnings_total=self._warnings)
        if follows := self.executor.locks.followed.numbers():
            numbers["follows"] = follows
        if self._fronts is not None:
            numbers["front_ends"] = self._fronts.stats()
        if self.link.state is LinkState.UP:
            with contextlib.suppress(ConnectionError, TimeoutError):
                worker = await asyncio.wait_for(self.ask("stats"), 2)
                numbers.update({f"worker_{k}": v for k, v in worker.items() if isinstance(v, (int, float))})
        return numbers

    def _restarts(self) -> int:
        return max(0, sum(link.stats.workers for link in self.links) - len(self.links))

    async def _watch_memory(self) -> None:
        """Unmap unused memory, drop ad-hoc views beyond their share, and warn of too much memory that stays."""
        warned_bytes = 0
        while True:
            await asyncio.sleep(MEMORY_WATCH_S)
            self.executor.reads.refresh()
            while leaving.give_back():
                await asyncio.sleep(0)
            if self.link.state is not LinkState.UP:
                continue
            with contextlib.suppress(ConnectionError):
                found = await self.ask("stats")
                with contextlib.suppress(SqlError):  # the next turn tries again
                    await self.program.make_room(found)
                warned_bytes = self._warn_of_memory(found, warned_bytes)

    def _warn_of_memory(self, found: dict[str, Any], warned_bytes: int) -> int:
        essential, limit = found["essential"] + found["symbols"], found["memory_limit"]
        if not limit or essential <= max(limit, 2 * warned_bytes):
            return warned_bytes if essential > limit else 0
        self._warnings += 1
        log.warning("full state and strings take %s of the memory limit of %s and are never evicted. SHOW NORIA STATUS "
                    "says which views need them and why: read these by a key, drop them, or raise --memory-limit",
                    size(essential), size(limit))
        return int(essential)

    async def export(self) -> str:
        return await self.program.exported()

    def apply(self, request: dict[str, Any], user: str, address: str) -> AsyncIterator[dict[str, Any]]:
        return applied(self.executor, self.sessions, request, user, address)

    async def set_limit(self, size: str) -> int:
        """Set another memory limit ('64M') until the server ends.  Return it in bytes.  Raises SqlError 1105."""
        try:
            nbytes = parse_size(size)
        except SettingsError as e:
            raise SqlError(*codes.UNKNOWN_ERROR, str(e)) from None
        if nbytes < LEAST_LIMIT:
            too_little = f"a memory limit of {nbytes} bytes is too little to serve; 1M at least"
            raise SqlError(*codes.UNKNOWN_ERROR, too_little)
        self._worker_limit = int(nbytes * WORKER_MEMORY_SHARE) // len(self.links)
        if self._fronts is None or self._fronts is not self.mysql:
            self.executor.replies.bound(reply_bytes(nbytes))
        else:
            self._fronts.bound(reply_bytes(nbytes))
        await self.link.ask(SetLimit(self._worker_limit), retry=True)
        return nbytes

    async def evict(self, nbytes: int | None) -> int:
        """Evict the least recently read keys until so many bytes are free (None: all keys).  Return the freed bytes."""
        freed: Done = await self.link.ask(Evict(0, nbytes), retry=True)
        return int(freed.value)

    async def ask(self, what: str, argument: str = "") -> Any:
        return await self.executor.ask(Inspect(0, what, argument))

    @property
    def databases(self) -> Databases:
        return self.program.catalog.databases

    def place(self, name: str) -> tuple[str, str]:
        return self.databases.split(self.program.catalog.resolved(name))

    def catalog_table(self, name: str) -> TableDef | None:
        return self.program.table(self.program.catalog.resolved(name))

    def catalog_view(self, name: str) -> ViewDef | None:
        return self.program.view(self.program.catalog.resolved(name))

    def catalog_reader(self, view: ViewDef) -> ViewDef | None:
        return self.program.reader_now(view)

    def view_list(self) -> list[dict[str, Any]]:
        return self.sessions.views()

    def attachment(self) -> dict[str, Any]:
        several = len(self.links)
        paths = [str(views_dir(self.run_dir, w, several)) for w in range(several)]
        return {"path": paths[0], "paths": paths, "by": self.link.routes.all_by(),
                "host": socket.gethostname(), "pid": os.getpid(),
                "load_token": str(self.settings.data_dir / TOKEN_FILE)}

    @property
    def transactions(self) -> HeldTransactions:
        return self.sessions.held

    def permitted(self, request: dict[str, Any], raw: bytes, proof: str | None) -> dict[str, Any]:
        return self._permit.check(request, raw, proof)

    def load(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        self.executor.locks.check(None, self.program.catalog.resolved(str(request.get("table", ""))))
        return logged(f"load into {request.get('table')}", self._source.load(request))

    def export_permitted(self, request: dict[str, Any], raw: bytes, proof: str | None) -> dict[str, Any]:
        return self._permit.check_export(request, raw, proof)

    def export_rows(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        return logged(f"export to {request.get('directory')}", self._source.export(request))

    def backup(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        return logged("backup", self.bulk.backup(request), closed="its checkpoint is released")

    def verify(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        return logged("verify", self.bulk.verify(request))

    def source(self) -> SparkSource:
        return self._source


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _address(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _log_event(event: Event) -> None:
    log.info("spark %s: %s", event.what, event.detail)


__all__ = ["MysqlServer", "ServerNode", "serve"]
