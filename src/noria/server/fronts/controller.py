"""The controller's side of the front ends: their processes, and the sessions of their connections.

    started ──Join──► begins ──Ready──► serves ──line lost, ended──► another one is started in its place

Keeps true: a change of the program is acknowledged when every front end on this host has processed it
(`wait_for_front_ends`).  A front end that does not process it in time is ended.  If a front end is lost, its sessions
are closed as if their clients had disconnected, with their locks and running statements.  No other front end is
affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from noria import __version__
from noria.core.limits import FAR_FRONT_ENDS, FRONT_SILENT_S
from noria.plan.view import ViewDef
from noria.runtime.transport import wire
from noria.runtime.transport.shard_owner import Process
from noria.runtime.worker.resources import private_bytes
from noria.server.answering.executor import Executor
from noria.server.fronts import messages
from noria.server.fronts.front_end_link import FrontEndLink
from noria.server.mysql.streaming import StreamTurns
from noria.server.outcomes import Client
from noria.server.sessions.sessions import Sessions
from noria.spark.hosting.session import import_path

log = logging.getLogger("noria")
START_S = 120  # a front end may take so long to serve, on a busy machine
SOON_S = 5.0  # if a front end ends sooner after its start, the next one starts after AGAIN_S
AGAIN_S = 1.0
BEAT_S = 1.0  # between two signs of life of the controller, for front ends on other hosts
FAR_NUMBERS = 2**31  # connections at front ends on other hosts are numbered from here


class CannotServe(Exception):
    """The front ends cannot serve; the message has the reason."""


class Fronts:
    """All front ends.  number: the front ends on this host, which replace the `MysqlServer`; 0: only far ones serve.

    begin: the message that starts them, without numbers and the version.
    """

    def __init__(self, number: int, endpoint: str, begin: messages.StartServing, executor: Executor, sessions: Sessions,
                 clock: Callable[[], float] = time.monotonic):
        self.number, self.endpoint, self.executor, self.sessions = number, endpoint, executor, sessions
        self._begin = begin
        self.clock: Callable[[], float] = clock
        self.turns = StreamTurns()  # of chunks of large replies
        self._lines: dict[int, FrontEndLink] = {}  # by the number of the front end
        self._numbers = [itertools.count(i + 1, number) for i in range(number)]  # of connections
        self._keepers: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._stopping = False
        self._here: Callable[[ViewDef], None] = lambda view: None  # forgets a view in this process
        self._ready: asyncio.Future[tuple[str, int]] | None = None
        self._first: set[int] = set()  # the front ends that have served once
        self._starts, self._reads = [0] * number, [0] * number
        self._far = _FarFrontEnds()
        self._hold = messages.HoldReads(0, False)  # the last one
        self._watching: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ life
    async def start(self) -> None:
        """Start the front ends, and wait until all of them serve.  Raises CannotServe."""
        loop = asyncio.get_running_loop()
        path = wire.socket_path(self.endpoint)
        self._server = await loop.create_unix_server(lambda: FrontEndLink(self), path)
        os.chmod(path, 0o600)
        self._ready = loop.create_future()
        catalog = self.executor.program.catalog
        catalog.on_version = self._version
        self._here, catalog.on_forget = catalog.on_forget, self._forget
        self.sessions.guard.on_change = self._hosts
        self.sessions.access.on_change.insert(0, self._change_accounts)  # before the program's version
        self._watching = asyncio.ensure_future(self._watch())
        if not self.number:
            return
        self.executor.wait_for_front_ends, self.executor.kept = self.wait_for_front_ends, self.kept
        locks = self.executor.locks
        locks.on_reads_wait, locks.readers_know = self._hold_reads, self._reads_held
        self._keepers = [asyncio.ensure_future(self._keep(i, path)) for i in range(self.number)]
        try:
            self.address = await asyncio.wait_for(self._ready, START_S)
        except TimeoutError:
            raise CannotServe(f"the front ends do not serve after {START_S} s: see the log") from None

    async def _keep(self, number: int, path: str) -> None:
        """Run a front end with this number.  When it ends, run the next one."""
        while True:
            self._starts[number] += 1
            began = self.clock()
            try:
                process, status = await self._process(number, path)
            except OSError as e:  # no memory, process or file is available now
                log.error("front end %d cannot be started, which is tried again: %s", number, e)
            else:
                if self._is_stopping():
                    return
                log.warning("front end %d (process %d) ended with status %d: its clients connect again, another one is "
                            "started", number, process, status)
            if self.clock() - began < SOON_S:
                await asyncio.sleep(AGAIN_S)
                if self._is_stopping():
                    return

    async def _process(self, number: int, path: str) -> tuple[int, int]:
        """Run one front end until its process ends; return its process id and its exit status."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "noria.server.fronts.process", path, str(number),
            stdin=asyncio.subprocess.DEVNULL, stdout=2, start_new_session=True,
            env={**os.environ, "PYTHONPATH": import_path()})
        try:
            return process.pid, await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise

    def _is_stopping(self) -> bool:
        return self._stopping

    def served(self, line: FrontEndLink, ready: messages.FrontEndReady) -> None:
        """Note that a front end serves, or end one that cannot."""
        assert self._ready is not None and line.number is not None
        if line.is_far:
            log.info("front end %d on another host serves MySQL at %s:%d", line.number, ready.host, ready.port)
            return
        if ready.failure:
            if not self._ready.done():
                self._ready.set_exception(CannotServe(ready.failure))
            log.error("front end %d cannot serve: %s", line.number, ready.failure)
            line.end()
            return
        self._first.add(line.number)
        log.info("front end %d serves (process %d)", line.number, 0 if line.process is None else line.process.pid)
        if len(self._first) == self.number and not self._ready.done():
            self._ready.set_result((ready.host, ready.port))

    def close(self) -> None:
        """Let all front ends stop.  They accept no more clients and answer running statements first."""
        self._stopping = True
        self._say(messages.StopServing())
        if not self._lines:
            self.abort()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await self._far.empty.wait()
        if self._server is not None:
            self._server.close()
        if self._watching is not None:
            self._watching.cancel()

    def abort(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        for line in list(self._far.lines.values()):
            line.end()

    def reload(self) -> None:
        self._say(messages.Reload())

    def bound(self, reply_bytes: int) -> None:
        """Limit the bytes of all front ends' kept replies together."""
        self._begin = replace(self._begin, reply_bytes=reply_bytes // self.number)
        self._say(messages.SetReplyLimit(self._begin.reply_bytes))

    def joined(self, line: FrontEndLink, join: messages.RegisterFrontEnd) -> None:
        if line.is_far:
            self._far_joined(line, join)
            return
        if not 0 <= join.number < self.number:
            raise wire.WireError(f"{join!r}, of {self.number} front ends")
        line.number = join.number
        if self._stopping:
            line.send(messages.StopServing())
            return
        old = self._lines.get(line.number)
        if old is not None:
            old.end()
        self._lines[line.number] = line
        self._begins(line, next(self._numbers[line.number]), self.number)

    def _begins(self, line: FrontEndLink, first: int, step: int) -> None:
        line.version = self.executor.program.version
        line.send(replace(self._begin, first=first, step=step, version=line.version,
                          logins=self.sessions.access.logins(),
                          max_connect_errors=self.sessions.guard.max_connect_errors,
                          databases=self.executor.program.catalog.database_names()))
        if self._hold.wait and not line.is_far:
            line.send(self._hold)

    def _far_joined(self, line: FrontEndLink, join: messages.RegisterFrontEnd) -> None:
        place = self._far.free()
        if join.release != __version__:
            line.refuse(f"it is of release {join.release}, the server of {__version__}: run one release throughout")
        elif self._stopping or place is None:
            line.refuse("the server is stopping" if self._stopping else
                        f"there are {FAR_FRONT_ENDS} front ends on other hosts already: that is the most")
        else:
            line.number = self.number + place
            self._far.lines[place] = line
            self._far.empty.clear()
            self._far.starts[place] = self._far.starts.get(place, 0) + 1
            self._begins(line, FAR_NUMBERS + place + FAR_FRONT_ENDS * self._far.opened.get(place, 0), FAR_FRONT_ENDS)

    def opened(self, line: FrontEndLink, client: Client) -> None:
        """Note a connection's number, so that a replacement of this front end uses other numbers."""
        assert line.number is not None
        if line.is_far:
            place = line.number - self.number
            self._far.opened[place] = (client.connection_id - FAR_NUMBERS) // FAR_FRONT_ENDS + 1
            return
        self._numbers[line.number] = itertools.count(client.connection_id + self.number, self.number)

    def kill(self, process: Process) -> None:
        if (handle := process.send_kill()) is not None:
            os.close(handle)

    def left(self, line: FrontEndLink) -> None:
        if line.number is None:
            return
        if line.is_far:
            self._far.left(line.number - self.number, line)
            log.warning("front end %d on another host is gone: its clients connect again", line.number)
        elif self._lines.get(line.number) is line:
            del self._lines[line.number]

    # ------------------------------------------------------------ messages to all
    def _all(self) -> list[FrontEndLink]:
        return [*self._lines.values(), *self._far.lines.values()]

    def _say(self, message: Any) -> None:
        for line in self._all():
            line.send(message)

    def _hosts(self, flushed: bool) -> None:
        self._say(messages.BlockHosts(self.sessions.guard.max_connect_errors, flushed))

    def _change_accounts(self) -> None:
        self._say(messages.ChangeAccounts(self.sessions.access.logins()))

    def _version(self, version: int) -> None:
        for line in self._all():
            line.changed(version)

    def _forget(self, view: ViewDef) -> None:
        self._here(view)
        for line in self._all():
            line.forget(view.name)

    async def _watch(self) -> None:
        """Send signs of life to far front ends, and end those that are silent for FRONT_SILENT_S."""
        while True:
            began = self.clock()
            await asyncio.sleep(BEAT_S)
            stalled = self.clock() - began > FRONT_SILENT_S / 2  # this loop was blocked: their messages are unread
            for line in list(self._far.lines.values()):
                line.send(messages.Heartbeat())
                if not stalled and line.is_silent_for > FRONT_SILENT_S:
                    log.error("front end %s on another host has been silent for %d s and is given up", line.number,
                              FRONT_SILENT_S)
                    line.end()

    async def wait_for_front_ends(self) -> None:
        """Wait until every front end on this host has the current version of the program.

        Far front ends need no wait: the controller checks the version of each of their lookups.
        """
        version = self.executor.program.version
        behind = [line for line in self._lines.values() if line.version < version]
        if behind:
            await asyncio.gather(*(line.reached(version) for line in behind))

    def _hold_reads(self, wait: bool) -> None:
        """Let the front ends on this host answer no SELECT, or let them again.  Far ones ask for each lookup."""
        self._hold = messages.HoldReads(self._hold.number + 1, wait)
        for line in self._lines.values():
            line.send(self._hold)

    async def _reads_held(self) -> None:
        """Wait until every front end on this host has received the last message of `_hold_reads`."""
        await asyncio.gather(*(line.holds_reads(self._hold.number) for line in self._lines.values()))

    # ------------------------------------------------------------ questions about all
    @property
    def connections(self) -> Sequence[int]:
        return [n for line in self._all() for n in line.held]

    def hang_up(self, number: int) -> bool:
        for line in self._all():
            if number in line.held:
                line.send(messages.HangUp(number))
                return True
        return False

    def kept(self) -> tuple[int, int]:
        """Return the bytes of kept replies on this host, and their limit."""
        return sum(line.reply_bytes for line in self._lines.values()), self._begin.reply_bytes * self.number

    def answered(self, line: FrontEndLink, reads: int) -> None:
        if line.is_far and line.number is not None:
            place = line.number - self.number
            self._far.reads[place] = self._far.reads.get(place, 0) + reads
        elif line.number is not None:
            self._reads[line.number] += reads

    def stats(self) -> list[dict[str, int]]:
        """Return the numbers of each front end (`http/metrics.py`)."""
        lines = [self._lines.get(i) for i in range(self.number)]
        return [{"reads_total": self._reads[i], "connections": 0 if line is None else line.connections,
                 "private_bytes": _private_bytes(line), "starts_total": self._starts[i]}
                for i, line in enumerate(lines)] + self._far.stats()

    def pids(self) -> list[int]:
        """Return the process id of each front end on this host; 0 while it is being started."""
        lines = [self._lines.get(i) for i in range(self.number)]
        return [0 if line is None or line.process is None else line.process.pid for line in lines]


class _FarFrontEnds:
    """Front ends on other hosts, by place: their lines and the counts of each place.

    opened: the number of connections that each place had.  empty: set while no far front end is connected.
    """

    def __init__(self) -> None:
        self.lines: dict[int, FrontEndLink] = {}
        self.opened: dict[int, int] = {}
        self.reads: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.empty = asyncio.Event()
        self.empty.set()

    def free(self) -> int | None:
        return next((p for p in range(FAR_FRONT_ENDS) if p not in self.lines), None)

    def left(self, place: int, line: FrontEndLink) -> None:
        if self.lines.get(place) is line:
            del self.lines[place]
        if not self.lines:
            self.empty.set()

    def stats(self) -> list[dict[str, int]]:
        lines = [self.lines.get(p) for p in range(max(self.starts, default=-1) + 1)]
        return [{"reads_total": self.reads.get(p, 0), "connections": 0 if line is None else line.connections,
                 "private_bytes": 0 if line is None else line.private_bytes, "starts_total": self.starts.get(p, 0)}
                for p, line in enumerate(lines)]


def _private_bytes(line: FrontEndLink | None) -> int:
    return 0 if line is None or line.process is None else private_bytes(line.process.pid)


__all__ = ["CannotServe", "Fronts"]
