"""The controller's side of the front ends: their processes, and the sessions of their connections.

    started ──Join──► begins ──Ready──► serves ──line lost, ended──► another one is started in its place

Keeps true: a change of the program is acknowledged when every front end has taken it in (`told`), and one that does not
in time is ended; of one that ends nothing stays: its sessions are closed as if their clients had gone, with their locks
and what they were at, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from noria.core.errors import SqlError, internal_error
from noria.dataflow.packets import Envelope
from noria.plan.view import ViewDef
from noria.runtime import wire
from noria.runtime.lineage import Process
from noria.runtime.pulse import Computing
from noria.server.answering.executor import Executor
from noria.server.answering.statements import Compiled
from noria.server.fronts import messages
from noria.server.mysql.session import Finisher
from noria.server.outcomes import Client, Encoded, Failed, Later, Ok, Outcome, ResultSet
from noria.server.sessions.session import Session
from noria.server.sessions.sessions import Sessions
from noria.spark.hosting.session import import_path

log = logging.getLogger("noria")
START_S = 120  # a front end may take so long to serve, on a machine that does much else
TOLD_S = 2.0  # one that has not taken a change of the program in by then, and does not compute, is ended
LOOK_S = 0.25  # between two looks whether it has
SOON_S = 5.0  # one that ended sooner after its start is not started again at once, but after AGAIN_S
AGAIN_S = 1.0


class CannotServe(Exception):
    """The front ends cannot serve: why."""


class Held:
    """A connection's session, and what it has prepared."""

    def __init__(self, session: Session):
        self.session = session
        self.statements: dict[int, Compiled] = {}


class Fronts:
    """All of them; in place of one `MysqlServer`.  begin: what they are told, but for numbers and the version."""

    def __init__(self, number: int, endpoint: str, begin: messages.Begin, executor: Executor, sessions: Sessions,
                 clock: Callable[[], float] = time.monotonic):
        self.number, self.endpoint, self.executor, self.sessions = number, endpoint, executor, sessions
        self._begin, self.clock = begin, clock
        self._lines: dict[int, Line] = {}  # by the number of the front end
        self._numbers = [itertools.count(i + 1, number) for i in range(number)]  # of connections
        self._keepers: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._stopping = False
        self._here: Callable[[ViewDef], None] = lambda view: None  # forgets in this process
        self._ready: asyncio.Future[tuple[str, int]] | None = None
        self._first: set[int] = set()  # that have served
        self._starts, self._reads = [0] * number, [0] * number

    # ------------------------------------------------------------ life
    async def start(self) -> None:
        """Returns when all of them serve.  CannotServe."""
        loop = asyncio.get_running_loop()
        path = wire.socket_path(self.endpoint)
        self._server = await loop.create_unix_server(lambda: Line(self), path)
        os.chmod(path, 0o600)
        self._ready = loop.create_future()
        self.executor.program.on_version = self._version
        self._here, self.executor.program.on_forget = self.executor.program.on_forget, self._forget
        self.executor.told, self.executor.kept = self.told, self.kept
        self._keepers = [asyncio.ensure_future(self._keep(i, path)) for i in range(self.number)]
        try:
            self.address = await asyncio.wait_for(self._ready, START_S)
        except TimeoutError:
            raise CannotServe(f"the front ends do not serve after {START_S} s: see the log") from None

    async def _keep(self, number: int, path: str) -> None:
        """One front end after the other in this place."""
        while True:
            self._starts[number] += 1
            began = self.clock()
            process, status = await self._process(number, path)
            if self._is_stopping():
                return
            log.warning("front end %d (process %d) ended with status %d: its clients connect again, another one is "
                        "started", number, process, status)
            if self.clock() - began < SOON_S:
                await asyncio.sleep(AGAIN_S)
                if self._is_stopping():
                    return

    async def _process(self, number: int, path: str) -> tuple[int, int]:
        """One front end, to its end: its process and how that ended."""
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

    def served(self, line: Line, ready: messages.Ready) -> None:
        assert self._ready is not None and line.number is not None
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
        """Take no more clients; those of a running statement have its answer before."""
        self._stopping = True
        self._say(messages.Stop())
        if not self._lines:
            self.abort()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._server is not None:
            self._server.close()

    def abort(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()

    def reload(self) -> None:
        self._say(messages.Reload())

    def bound(self, reply_bytes: int) -> None:
        """Kept replies of all of them may take so many bytes."""
        self._begin = replace(self._begin, reply_bytes=reply_bytes // self.number)
        self._say(messages.Bound(self._begin.reply_bytes))

    def joined(self, line: Line) -> None:
        assert line.number is not None
        if self._stopping:
            line.send(messages.Stop())
            return
        old = self._lines.get(line.number)
        if old is not None:
            old.end()
        self._lines[line.number] = line
        version = self.executor.program.version
        line.version = version
        first = next(self._numbers[line.number])
        line.send(replace(self._begin, first=first, step=self.number, version=version))

    def opened(self, line: Line, client: Client) -> None:
        """Connections of a front end that comes after this one have other numbers."""
        assert line.number is not None
        self._numbers[line.number] = itertools.count(client.connection_id + self.number, self.number)

    def kill(self, process: Process) -> None:
        if (handle := process.send_kill()) is not None:
            os.close(handle)

    def left(self, line: Line) -> None:
        if line.number is not None and self._lines.get(line.number) is line:
            del self._lines[line.number]

    # ------------------------------------------------------------ what all are told
    def _say(self, message: Any) -> None:
        for line in self._lines.values():
            line.send(message)

    def _version(self, version: int) -> None:
        self._say(messages.Version(version))

    def _forget(self, view: ViewDef) -> None:
        self._here(view)
        self._say(messages.Forget(view.name))

    async def told(self) -> None:
        """Returns when every front end answers by this version of the program."""
        version = self.executor.program.version
        behind = [line for line in self._lines.values() if line.version < version]
        if behind:
            await asyncio.gather(*(line.reached(version) for line in behind))

    # ------------------------------------------------------------ what is asked of all
    @property
    def connections(self) -> Sequence[int]:
        return [n for line in self._lines.values() for n in line.held]

    def hang_up(self, number: int) -> bool:
        for line in self._lines.values():
            if number in line.held:
                line.send(messages.HangUp(number))
                return True
        return False

    def kept(self) -> tuple[int, int]:
        """Bytes of kept replies, and how many there may be."""
        return sum(line.reply_bytes for line in self._lines.values()), self._begin.reply_bytes * self.number

    def answered(self, line: Line, reads: int) -> None:
        if line.number is not None:
            self._reads[line.number] += reads

    def stats(self) -> list[dict[str, int]]:
        """Of each front end (`http/metrics.py`)."""
        lines = [self._lines.get(i) for i in range(self.number)]
        return [{"reads_total": self._reads[i], "connections": 0 if line is None else line.connections,
                 "private_bytes": 0 if line is None else _private_bytes(line.process), "starts_total": self._starts[i]}
                for i, line in enumerate(lines)]

    def pids(self) -> list[int]:
        """Of each place; 0 where one is being started."""
        lines = [self._lines.get(i) for i in range(self.number)]
        return [0 if line is None or line.process is None else line.process.pid for line in lines]


class Line(asyncio.Protocol):
    """The line to one front end.  version: of the program that it has taken in."""

    def __init__(self, fronts: Fronts):
        self._fronts, self._executor = fronts, fronts.executor
        self._reader = wire.Reader()
        self.number: int | None = None
        self.process: Process | None = None
        self.version, self.reply_bytes, self.connections = -1, 0, 0
        self.held: dict[int, Held] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._bugs = itertools.count(1)
        self._does: dict[type, Callable[[Any], object]] = {
            messages.Ready: lambda m: fronts.served(self, m), messages.Acknowledge: self._acknowledged,
            messages.Count: self._counted, messages.Touch: self._touched, messages.Open: self._open,
            messages.Close: lambda m: self._close(m.connection),
            messages.CloseStatement: lambda m: self.held[m.connection].statements.pop(m.statement, None),
            messages.Use: lambda m: self.held[m.connection].session.use(m.database),
            messages.Reset: lambda m: self.held[m.connection].session.reset()}
        self._asks: dict[type, Callable[[Held, Any], Any]] = {
            messages.Query: self._query, messages.Prepare: self._prepare, messages.Execute: self._execute,
            messages.ListFields: lambda held, m: held.session.list_fields(m.table, m.pattern),
            messages.Kill: lambda held, m: held.session.kill(m.number)}

    # ------------------------------------------------------------ the line
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        if not wire.same_user(peer := transport.get_extra_info("socket")):
            self._transport.abort()
            return
        self.process = wire.other_end(peer)

    def data_received(self, data: bytes) -> None:
        try:
            for item in self._reader.feed(data):
                if not isinstance(item, Envelope):
                    raise wire.WireError(str(item))
                self._take(item.body)
        except wire.WireError as e:
            log.error("front end %s is ended, for what it said cannot be read: %s", self.number, e)
            self.end()

    def _take(self, body: Any) -> None:
        if self.number is None:
            if not isinstance(body, messages.Join) or not 0 <= body.number < self._fronts.number:
                raise wire.WireError(f"{body!r} before it joined")
            self.number = body.number
            self._fronts.joined(self)
        elif isinstance(body, messages.Request):
            self._ask(body)
        else:
            self._does[type(body)](body)

    def connection_lost(self, error: Exception | None) -> None:
        self._fronts.left(self)
        for number in list(self.held):
            self._close(number)
        for _, reached in self._waiting:
            if not reached.done():
                reached.set_result(None)
        self._waiting.clear()

    def send(self, message: Any) -> None:
        self._transport.write(wire.encode(Envelope(0, self.number or 0, 0, message)))

    def end(self) -> None:
        """At once; another process takes its place."""
        self._transport.abort()
        if self.process is not None:
            self._fronts.kill(self.process)

    # ------------------------------------------------------------ the program
    def _acknowledged(self, told: messages.Acknowledge) -> None:
        self.version = told.version
        for version, reached in self._waiting:
            if version <= self.version and not reached.done():
                reached.set_result(None)
        self._waiting = [(v, f) for v, f in self._waiting if not f.done()]

    async def reached(self, version: int) -> None:
        """Returns when it has this version, or is gone: one that neither takes it in nor computes is ended."""
        if self.version >= version:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((version, reached))
        computing, waited = Computing(self.process), 0.0
        while not reached.done():
            before = self._fronts.clock()
            await asyncio.wait((reached,), timeout=LOOK_S)
            waited += min(self._fronts.clock() - before, LOOK_S)  # if this loop stood still, answers are unread
            if not reached.done() and waited >= TOLD_S and not computing.goes_on():
                log.error("front end %s does not take in a change of the program and is ended", self.number)
                self.end()
                return

    def _touched(self, told: messages.Touch) -> None:
        view = self._executor.program.adhoc_named(told.view)
        if view is not None:
            self._executor.program.touch(view)

    def _counted(self, count: messages.Count) -> None:
        executor = self._executor
        executor.selects += count.selects
        executor.replies.hits += count.kept
        executor.reads.had_elsewhere(count.lookups)
        self.reply_bytes, self.connections = count.reply_bytes, count.connections
        self._fronts.answered(self, count.selects + count.kept)

    # ------------------------------------------------------------ sessions
    def _open(self, told: messages.Open) -> None:
        self._fronts.opened(self, told.client)
        session = self._fronts.sessions.connect(replace(told.client, keeps=False))
        self.held[told.client.connection_id] = Held(session)

    def _close(self, connection: int) -> None:
        held = self.held.pop(connection, None)
        if held is not None:
            held.session.close()

    def _ask(self, request: messages.Request) -> None:
        held = self.held[request.connection]
        if request.cleared:
            held.session.warnings = ()
        reply = partial(self._settled, request, held)
        try:
            answer = self._asks[type(request)](held, request)
        except Exception as e:
            self._failed(request, held, e)
            return
        if isinstance(answer, Later):
            answer.future.add_done_callback(lambda done: reply(partial(answer.then, done)))
        elif inspect.isawaitable(answer):
            task = asyncio.ensure_future(_awaited(answer))
            task.add_done_callback(lambda done: reply(done.result))
        else:
            reply(lambda: answer)

    def _settled(self, request: messages.Request, held: Held, result: Callable[[], Any]) -> None:
        """The session has answered: its reply, unless the client has gone meanwhile."""
        try:
            answer = result()
            if isinstance(request, messages.Query | messages.Execute):
                answer = self._encoded(answer, held.session, request.form)
        except (Exception, asyncio.CancelledError) as e:
            self._failed(request, held, e)
            return
        self._reply(request, held, answer, None)

    def _failed(self, request: messages.Request, held: Held, error: BaseException) -> None:
        if self.held.get(request.connection) is not held:
            return  # the client has gone
        if not isinstance(error, SqlError):
            number = f"F{request.connection}.{next(self._bugs)}"
            log.error("internal error %s: a request could not be answered", number, exc_info=error)
            error = internal_error(number)
        self._reply(request, held, None, error)

    def _reply(self, request: messages.Request, held: Held, answer: Any, error: SqlError | None) -> None:
        if self.held.get(request.connection) is not held or self._transport.is_closing():
            return
        session = held.session
        taught = seen = None
        if error is None:
            taught = self._taught(request, held)
            lacks = request.lacks if isinstance(request, messages.Query | messages.Execute) else None
            seen = lacks if lacks is not None and self._executor.has(*lacks, session.unseen) else None
        self.send(messages.Reply(request.connection, answer, error, session.status, session.keepable, session.unseen,
                                 taught, seen))

    # ------------------------------------------------------------ statements
    def _query(self, held: Held, asked: messages.Query) -> Any:
        return held.session.query(asked.text, asked.multi, Finisher(*asked.form, held.session))

    def _prepare(self, held: Held, asked: messages.Prepare) -> Any:
        prepared = held.session.prepare(asked.text)
        held.statements[asked.statement] = prepared.handle
        return prepared.parameters, prepared.fields, prepared.number

    def _execute(self, held: Held, asked: messages.Execute) -> Any:
        compiled = held.statements[asked.statement]
        return held.session.execute(compiled, asked.values, Finisher(*asked.form, held.session))

    def _taught(self, request: messages.Request, held: Held) -> Any:
        """What the front end needs to answer the statement itself the next time."""
        statements = self._executor.statements
        if isinstance(request, messages.Query):
            known = statements.recognise(request.text) if request.learn else None
            return None if known is None else self._executor.taught(known[0])
        if isinstance(request, messages.Prepare) or (isinstance(request, messages.Execute) and request.learn):
            compiled = held.statements[request.statement]
            if compiled.version != self._executor.program.version:
                with contextlib.suppress(SqlError):  # the next execution will tell
                    compiled = held.statements[request.statement] = statements.prepare(compiled.text)
            return self._executor.taught(compiled)
        return None

    def _encoded(self, answer: Any, session: Session, form: messages.Form) -> Any:
        """With results as the bytes that the client gets."""
        if isinstance(answer, ResultSet):
            return Finisher(*form, session)(answer)
        if isinstance(answer, Ok | Encoded | Failed):
            return answer
        return [self._encoded(one, session, form) for one in cast(Sequence[Outcome], answer)]


def _private_bytes(process: Process | None) -> int:
    """Of its memory what no other process shares; 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{0 if process is None else process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


async def _awaited(answer: Any) -> Any:
    return await answer


__all__ = ["CannotServe", "Fronts"]
