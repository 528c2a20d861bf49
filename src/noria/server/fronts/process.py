"""A front end's process: `python -m noria.server.fronts.process SOCKET NUMBER`, started by the controller.

Keeps true: the process has no parser, program or store, and ends with its controller.  It handles the controller's
messages in order, so a change of the program precedes later replies.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import uvloop

from noria.core.limits import OFF_LOOP_ROWS, READ_HOLD_MS
from noria.dataflow.messages.packets import Envelope, SessionWrites
from noria.runtime.link.link import Link
from noria.runtime.transport import wire
from noria.runtime.worker.frontier import FrontierReader, frontier_path
from noria.runtime.worker.resources import raise_open_files, use_arrow_without_pandas
from noria.server.answering.hits import KnownSelect, hit
from noria.server.answering.replies import ReplyCache
from noria.server.answering.view_lookups import ViewLookups
from noria.server.fronts import messages
from noria.server.fronts.message_codec import KINDS, MESSAGES
from noria.server.fronts.remote import Lacks, RemoteSessions, scope_of
from noria.server.fronts.replica import Replica
from noria.server.listening import CannotListen, listening
from noria.server.mysql import MysqlServer, listen
from noria.server.outcomes import Client, ResultSet
from noria.server.tls import Certificates
from noria.state.memory.mapped import leaving
from noria.views.reader import attach

log = logging.getLogger("noria.front")
REPORT_S = 1.0  # between two reports of counts (`messages.Counters`)
REFRESH_S = 10  # between two attempts to unmap memory that views have left
CLIENTS_STOP_S = 5  # running statements get so long to end


class NoLink:
    """The part of a link that reads of shared memory use.  It cannot send requests to workers."""

    def __init__(self, replica: Replica):
        self.routes = replica.routes
        self.has = replica.has

    async def ask(self, body: Any, retry: bool = False, lease: Any = None) -> Any:
        raise ConnectionError("a front end asks its controller")


class FrontEnd(asyncio.Protocol):
    """The line to the controller, and the MySQL server over it.  The process ends with the line."""

    replica: Replica
    reads: ViewLookups
    link: Link
    replies: ReplyCache
    sessions: RemoteSessions

    def __init__(self, number: int, ended: asyncio.Event):
        self._number, self._ended = number, ended
        self._reader = wire.FrameDecoder(MESSAGES, KINDS)
        self._server: MysqlServer | None = None
        self.selects = 0
        self._kept_reported: Counter[str] = Counter()
        self._lookups_reported: Counter[str] = Counter()
        self._reported: messages.Counters | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._certificates: Certificates | None = None
        self._message_handlers: dict[type, Callable[[Any], None]] = {
            messages.StartServing: self._begin, messages.Version: self._version,
            messages.Forget: self._forget, messages.ChangeAccounts: self._change_accounts,
            messages.HoldReads: self._hold_reads,
            messages.SetReplyLimit: lambda m: self.replies.bound(m.reply_bytes),
            messages.Reply: lambda m: self.sessions.replied(m), messages.BlockHosts: lambda m: self.sessions.hosts(m),
            messages.ReplyChunk: lambda m: self.sessions.receive_chunk(m),
            messages.HangUp: self._hang_up, messages.Reload: self._reload,
            messages.StopServing: lambda m: self._soon(self._stop())}

    # ------------------------------------------------------------ the line
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        if not wire.same_user(transport.get_extra_info("socket")):
            self._end("the controller's socket is somebody else's")
            return
        self.send(messages.RegisterFrontEnd(self._number))

    def data_received(self, data: bytes) -> None:
        for item in self._reader.feed(data):
            if not isinstance(item, Envelope):
                self._end(f"the controller said what cannot be read: {item}")
                return
            self._message_handlers[type(item.body)](item.body)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()

    def send(self, message: Any) -> None:
        self._transport.write(wire.encode(Envelope(0, self._number, 0, message), MESSAGES))

    def _end(self, why: str) -> None:
        log.error("front end %d ends: %s", self._number, why)
        self._transport.abort()

    def _soon(self, doing: Any) -> None:
        task = asyncio.ensure_future(doing)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (why := task.exception()) is not None:
            log.error("front end %d ends", self._number, exc_info=why)
            self._ended.set()

    # ------------------------------------------------------------ life
    def _begin(self, begin: messages.StartServing) -> None:
        logging.getLogger().setLevel(begin.log_level)
        frontiers = [FrontierReader(frontier_path(Path(path).parent, w), len(begin.views))
                 for w, path in enumerate(begin.views)]
        self.replica = Replica(begin.version, len(begin.views), lambda worker, writer: frontiers[worker](writer),
                               begin.databases)
        self.link = cast(Link, NoLink(self.replica))
        self.replies = ReplyCache(begin.reply_bytes, self.replica)
        self.reads = ViewLookups(self.link, lambda w: attach(begin.views[w], OFF_LOOP_ROWS), READ_HOLD_MS)
        self.reads.on_forget, self.reads.on_drop = self.replies.forget, self.replies.dropped
        self._logins = begin.logins
        self.sessions = RemoteSessions(self)
        self.sessions.guard.set_most_errors(begin.max_connect_errors)
        self._soon(self._listen(begin))

    async def _listen(self, begin: messages.StartServing) -> None:
        self._certificates = Certificates.of(begin.tls_cert, begin.tls_key, begin.tls_ca)
        try:
            bound = listening(begin.host, begin.port, "--mysql-host, --mysql-port", shared=True)
        except CannotListen as e:
            self.send(messages.FrontEndReady(failure=str(e)))
            return
        self._server = await listen(bound, self.sessions, self._logins, None, self._certificates, begin.tls_require,
                                    itertools.count(begin.first, begin.step), self.sessions.guard)
        self.send(messages.FrontEndReady(*self._server.address))
        self._soon(self._report())
        self._soon(self._refresh())

    async def _stop(self) -> None:
        if self._server is not None:
            await self._server.stop(CLIENTS_STOP_S)
        self._ended.set()

    def _hang_up(self, message: messages.HangUp) -> None:
        if self._server is not None:
            self._server.hang_up(message.connection)

    def _reload(self, message: messages.Reload) -> None:
        if self._certificates is not None:
            self._certificates.reload()

    # ------------------------------------------------------------ accounts
    def _change_accounts(self, message: messages.ChangeAccounts) -> None:
        self._logins = message.logins
        if self._server is not None:
            self._server.admit(message.logins)
        self.sessions.changed_accounts()

    def scope_of(self, client: Client) -> str:
        return scope_of(self._logins, client)

    # ------------------------------------------------------------ hits
    def hit(self, known: KnownSelect, values: Sequence[Any], unseen: SessionWrites) -> ResultSet | Lacks:
        return hit(self.reads, self.link, known, values, True, unseen)

    # ------------------------------------------------------------ the program
    def _version(self, message: messages.Version) -> None:
        self.replica.changed(message.version, message.databases)
        self.send(messages.Acknowledge(message.version))

    def _forget(self, message: messages.Forget) -> None:
        self._count()
        self.replica.forget(message.view)
        self.reads.forget(message.view)
        self._lookups_reported.pop(message.view, None)
        self._kept_reported.pop(message.view, None)

    def _hold_reads(self, message: messages.HoldReads) -> None:
        self.sessions.hold(message.wait)
        self.send(messages.ReadsHeld(message.number))

    # ------------------------------------------------------------ counts
    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            self._count()

    def _count(self) -> None:
        lookups = Counter(self.reads.hits_of())
        new = lookups - self._lookups_reported
        self._lookups_reported = lookups
        kept_hits = self.replies.hits_of()
        kept, self._kept_reported = kept_hits - self._kept_reported, kept_hits
        selects, self.selects = self.selects, 0
        clients = 0 if self._server is None else len(self._server.connections)
        logins = self.sessions.guard.taken()
        count = messages.Counters(selects, dict(kept), dict(new), clients, self.replies.nbytes, logins=logins)
        if count != self._reported or selects or kept or any(logins.values()):
            self.send(count)
        self._reported = count

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            self.reads.refresh()
            while leaving.give_back():
                await asyncio.sleep(0)


async def _run(path: str, number: int) -> None:
    ended = asyncio.Event()
    with contextlib.suppress(OSError):  # the controller has gone already
        await asyncio.get_running_loop().create_unix_connection(lambda: FrontEnd(number, ended), path)
        await ended.wait()


def main(arguments: list[str]) -> None:
    os.umask(0o077)
    use_arrow_without_pandas()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the terminal reaches the controller, which sends Stop
    raise_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(arguments[0], int(arguments[1])))


if __name__ == "__main__":
    main(sys.argv[1:])


__all__ = ["FrontEnd", "main"]
