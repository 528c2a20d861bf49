"""A MariaDB with a row binlog, to be followed: killed and started again on its port; and how it is compared."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from e2e.mariadb import DAEMON, INSTALL
from e2e.serving import until
from noria.following import follower as follower_module
from noria.following.address import SourceAddress
from noria.following.follower import Alive, Follower, FollowOptions
from noria.following.schema import SourceTable
from noria.following.snapshot import LoadReporter, RangeReader, _spark_schema
from noria.server.source.follows import Followers
from noria.server.source.writes import StagedWrites
from noria.spark.source.writer import Sink
from ports import free_port
from server.local_services import LocalServices

DATABASE = "shop"


class SourceDb:
    def __init__(self, directory: Path, *options: str):
        assert DAEMON is not None and INSTALL is not None
        self._directory, self._options, self.port = directory, options, free_port()
        self._log = directory / "mariadb.log"
        with self._log.open("wb") as log:
            subprocess.run([INSTALL, "--no-defaults", f"--datadir={directory / 'mariadb'}",
                            "--auth-root-authentication-method=normal", "--skip-test-db", "--user=root"],
                           check=True, stdout=log, stderr=log, timeout=120)
        self.start()
        self.run("CREATE USER app@'%' IDENTIFIED BY 'secret'",
                 "GRANT SELECT, RELOAD, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO app@'%'",
                 f"CREATE DATABASE {DATABASE}", database=None)

    def start(self) -> None:
        assert DAEMON is not None
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [DAEMON, "--no-defaults", f"--datadir={self._directory / 'mariadb'}", "--user=root",
                 f"--socket={self._directory / 's'}", "--bind-address=127.0.0.1", f"--port={self.port}",
                 "--server-id=7", f"--log-bin={self._directory / 'mariadb' / 'binlog'}", "--binlog-format=ROW",
                 "--binlog-row-metadata=FULL", "--sync-binlog=1", "--character-set-server=utf8mb4",
                 "--default-time-zone=+02:00", *self._options], stdout=log, stderr=log)
        until("the source answers", self._answers, 60)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()[-2000:]
        try:
            self.connect(None).close()
        except pymysql.err.OperationalError:
            return False
        return True

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def connect(self, database: str | None = DATABASE) -> Any:
        return pymysql.connect(unix_socket=str(self._directory / "s"), user="root", autocommit=True, ssl_disabled=True,
                               database=database, charset="utf8mb4", init_command="SET time_zone = '+00:00'")

    def run(self, *statements: str, database: str | None = DATABASE) -> None:
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def anew(self) -> None:
        self.run(f"DROP DATABASE {DATABASE}", f"CREATE DATABASE {DATABASE}", database=None)

    @property
    def address(self) -> SourceAddress:
        return SourceAddress("127.0.0.1", self.port, DATABASE, "app", "secret")

    @property
    def url(self) -> str:
        return f"mysql://app:secret@127.0.0.1:{self.port}/{DATABASE}"

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables, in an order that both sides have."""
        found = {}
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            for (table,) in cursor.fetchall():
                cursor.execute(f"SELECT * FROM `{table}`")
                found[table] = sorted(cursor.fetchall(), key=repr)
        return found


class Followed(LocalServices):
    """A database in this process, behind HTTP, that tables can be followed into."""

    def __init__(self, directory: Path):
        super().__init__(directory)
        executor, link = self.executor, self.embedded.link

        async def run(text: str) -> object:
            return await self.embedded.sessions.run(text, [])

        (directory / "parts").mkdir(exist_ok=True)
        writes = StagedWrites(executor, None, link, directory / "parts",
                              run)  # never many rows
        follows = Followers(executor, link, writes, run)
        self.embedded.run(follows.recover())
        self._source = SimpleNamespace(follows=follows, part=writes.part, commit=writes.commit, drop=writes.drop)

    def source(self) -> Any:
        return self._source

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def all(self, text: str) -> list[tuple[Any, ...]]:
        outcome = self.embedded.run(self.embedded.sessions.run(text, []))[-1]
        return list(outcome.rows)

    def rows(self, tables: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
        return {t: sorted(map(tuple, self.all(f"SELECT * FROM `{t}`")), key=repr) for t in tables}


def load_here(address: SourceAddress, url: str, tables: Sequence[SourceTable], run: str, alive: Alive) -> None:
    """What Spark's tasks do, in this process."""
    for table in tables:
        sink = Sink({"url": url, "table": table.name}, _spark_schema(table), False)
        reader = RangeReader(address, table, LoadReporter(url, address.name, run))
        staged = [sink.staged(reader.read(part)) for part in reader.partitions()]
        alive()
        sink.done(staged, 0, f"follow.{address.name}.{table.name.encode().hex()}")


@contextmanager
def following(source: SourceDb, target: Followed, *tables: str, load: Any = load_here) -> Any:
    """A follower in a thread; its errors are told when it ends."""
    said: list[str] = []
    follower = Follower(FollowOptions(source.address, target.url, tables), load, said.append)
    failed: list[Exception] = []

    def run() -> None:
        try:
            follower.run()
        except Exception as e:
            failed.append(e)

    thread = threading.Thread(target=run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower_module, "IDLE_S", 0.1)
        thread.start()
        try:
            yield SimpleNamespace(said=said, failed=failed, follower=follower, thread=thread,
                                  caught_up=partial(caught_up, source, target, failed),
                                  loaded=partial(loaded, target, failed))
        finally:
            follower.over.set()
            thread.join(60)
            assert not thread.is_alive()


def loaded(target: Followed, failed: Sequence[Exception]) -> None:
    def there() -> bool:
        assert not failed, failed
        return any(f["record"]["loaded"] for f in target.source().follows.all())

    until("the tables are loaded", there)


def caught_up(source: SourceDb, target: Followed, failed: Sequence[Exception], wait_s: float = 25) -> None:
    """Returns when all that the source has committed is applied."""
    with source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file, position = cursor.fetchone()[:2]
    end = int(file.rpartition(".")[2]) * 2**32 + int(position)

    def there() -> bool:
        assert not failed, failed
        return any(f["record"]["loaded"] and (f["at"] or f["record"]["start"]) >= end
                   for f in target.source().follows.all())

    try:
        until("the source's binlog is applied", there, wait_s)
    except AssertionError as e:
        told = target.all("SHOW NORIA FOLLOWING"), [f["at"] - end for f in target.source().follows.all()]
        raise AssertionError(f"{e}: {told}, {end % 2**32}") from None
