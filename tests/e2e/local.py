"""A database inside this process that MySQL clients can connect to: the embedded runtime behind a MySQL listener.

Starts in a tenth of a second and has no Spark, so what no view can answer is error 1235.  NORIA_FRONT_ENDS=2: clients
are those of two front ends, which are in this process, too, and have sockets between them and the database.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pytest

from noria.client.embedded import EmbeddedTransport
from noria.control.catalog.policy import ViewPolicy
from noria.dataflow.messages.packets import Evict, Inspect
from noria.runtime.transport.handshake import SharedCredentials
from noria.server.fronts.controller import Fronts
from noria.server.fronts.far import FarFront, FarSettings
from noria.server.fronts.messages import StartServing
from noria.server.fronts.process import FrontEnd
from noria.server.listening import listening, reserved
from noria.server.mysql import MysqlServer, listen
from noria.sql.parse import parse

REPLY_BYTES = 2**20  # replies are kept, as a server keeps them


FRONT_ENDS = int(os.environ.get("NORIA_FRONT_ENDS", "1"))


class LocalFront(FrontEnd):
    def die(self) -> None:
        """As its process would."""
        if self._server is not None:
            self._server.close()
            self._server.abort()
        for task in self._tasks:
            task.cancel()


class LocalFar(FarFront):
    """One on another host, as it is once both ends have proved themselves."""

    def __init__(self, path: str):
        self.ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        super().__init__(FarSettings(("the server", 1), SharedCredentials(b""), mysql_port=0), self.ready.set_result)
        self.path = path
        self.running = asyncio.ensure_future(self.run())

    async def _connected(self) -> Any:
        return await asyncio.open_unix_connection(self.path)

    async def end(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        if self._server is not None:
            self._server.close()
            self._server.abort()


class LocalFronts(Fronts):
    """Front ends without processes of their own."""

    async def _keep(self, number: int, path: str) -> None:
        self.ended: dict[int, asyncio.Event] = getattr(self, "ended", {})
        self.fronts: dict[int, LocalFront] = getattr(self, "fronts", {})
        while not self._stopping:
            ended = self.ended[number] = asyncio.Event()
            front = self.fronts[number] = LocalFront(number, ended)
            transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda f=front: f, path)
            await ended.wait()
            transport.abort()
            front.die()

    def kill(self, process: Any) -> None:
        """It is this one."""



def views_at_once(embedded: Any) -> None:
    """From now on every SELECT is given a view when it is asked for the first time."""
    embedded.program.adhoc_views.policy = ViewPolicy(one_shots=0)


class LocalServer:
    mysql: MysqlServer | LocalFronts

    def __init__(self, directory: Path, memory_limit: int | None = None, front_ends: int = FRONT_ENDS,
                 workers: int | None = None):
        """workers: None, as many as are drawn for the test."""
        many = {} if workers is None else {"workers": workers}
        self.embedded = EmbeddedTransport(directory, memory_limit, **many)
        self.executor = self.embedded.executor
        self.executor.replies.bound(REPLY_BYTES)
        if front_ends > 1:
            self._port = reserved("127.0.0.1", 0, "")
            self.mysql = self.embedded.run(self._with_fronts(front_ends))
        else:
            access = self.embedded.sessions.access
            server = self.mysql = self.embedded.run(
                listen(listening("127.0.0.1", 0, ""), self.embedded.sessions, access.logins()))
            access.on_change.append(lambda: server.admit(access.logins()))
            self.embedded.sessions.processes.hang_up = self.mysql.hang_up

    def far(self) -> LocalFar:
        """Another front end, on another host."""
        async def begun() -> LocalFar:
            assert isinstance(self.mysql, LocalFronts)
            far = LocalFar(str(self.embedded.run_dir / "fronts.sock"))
            await asyncio.wait((far.ready, far.running), return_when=asyncio.FIRST_COMPLETED)
            return far

        made: LocalFar = self.embedded.run(begun())
        return made

    async def _with_fronts(self, number: int) -> LocalFronts:
        embedded = self.embedded
        views = tuple(embedded.attachment()["paths"])
        begin = StartServing(*self._port.getsockname(), views, 0, 0, 0, REPLY_BYTES, embedded.sessions.access.logins())
        fronts = LocalFronts(number, f"ipc://{embedded.run_dir / 'fronts.sock'}", begin, self.executor,
                             embedded.sessions)
        await fronts.start()
        embedded.sessions.processes.hang_up = fronts.hang_up
        return fronts

    def at(self, front: int) -> Any:
        """A client of this front end: the kernel chooses, the connection's number tells."""
        assert isinstance(self.mysql, LocalFronts)
        while True:
            connection = self.connect()
            if (connection.thread_id() - 1) % self.mysql.number == front:
                return connection
            connection.close()

    def connect(self, port: int = 0, user: str = "root", password: str = "", database: str | None = None) -> Any:
        return pymysql.connect(host="127.0.0.1", port=port or self.mysql.address[1], user=user, password=password,
                               database=database, autocommit=True, read_timeout=120, write_timeout=120,
                               ssl_disabled=True)

    def connector(self) -> Any:
        """By the driver that has prepared statements."""
        return mysql.connector.connect(host="127.0.0.1", port=self.mysql.address[1], user="root", autocommit=True,
                                       use_pure=True, ssl_disabled=True)

    def one_shots(self) -> int:
        """How many SELECTs were answered without a view."""
        return self.executor.reads.one_shots

    @contextmanager
    def answering(self, one_shot: bool) -> Iterator[None]:
        """SELECTs are answered by one-shots meanwhile, whether or not a view has their rows, or each by a view."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.executor.replies, "get", lambda *_: None)
            patch.setattr(self.embedded.program, "wants_one_shot", lambda wanted: one_shot)
            if one_shot:
                patch.setattr(self.executor, "reader_of", lambda compiled, view: None)
            yield

    def evict(self, nbytes: int | None = None) -> None:
        """Forget everything partial, or least recently read keys of so many bytes."""
        self.embedded.run(self.embedded.link.ask(Evict(0, nbytes)))

    def ask(self, what: str, argument: str = "") -> Any:
        return self.embedded.run(self.executor.ask(Inspect(0, what, argument)))

    def locks_waited_for(self) -> int:
        """How many requests wait for a lock now."""
        return int(self.ask("stats")["lock_waits"])

    def define(self, text: str) -> None:
        """Change the program beside open transactions, as an ALTER TABLE that began before them."""
        program = self.executor.program
        (command,) = parse(text, program.catalog)
        self.embedded.run(program.define(command))

    def validate(self) -> None:
        """Every state equals a recomputation; raises what is violated."""
        self.ask("validate")

    def close(self) -> None:
        self.embedded.run(self._stop())
        self.embedded.close()

    async def _stop(self) -> None:
        self.mysql.close()
        if isinstance(self.mysql, LocalFronts):
            for front in self.mysql.fronts.values():
                front.die()
            self._port.close()
        else:
            self.mysql.abort()
        await self.mysql.wait_closed()
