"""A change of the program while one of two worker processes is down: reported, shown, cancelled, and made later."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import noria.runtime.cluster.absent_workers
from noria.core.errors import SqlError
from noria.core.limits import HEARTBEAT_MS
from noria.server.outcomes import Client
from noria.server.sessions.requests import complete
from noria.storage.tables.shards import owners
from runtime.processes import run, within
from runtime.several import Several

READ = "SELECT a FROM t WHERE id = ?"
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT)"


async def until_shown(db: Several, what: str) -> None:
    async def shown() -> None:
        while not re.search(what, str(await db.sql("SHOW NORIA MIGRATIONS"))):
            await asyncio.sleep(HEARTBEAT_MS / 1000)

    await within(shown(), 60)


def test_a_change_while_a_worker_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        db = Several(tmp_path, 2)
        try:
            await db.start()
            await db.sql(TABLE)
            await db.sql(f"INSERT INTO t VALUES {', '.join(f'({i}, {i % 3})' for i in range(40))}")
            table = db.link._program.mirror.tables["t"]
            mine = np.flatnonzero(owners(table, {0: pa.array(range(40), pa.int32())}, 40, 2) == 0).tolist()
            for i in range(40):
                await db.sql(READ, i)
            await db.lose(1)
            monkeypatch.setattr(noria.runtime.cluster.absent_workers, "CHANGE_WAIT_S", 0.2)
            for text in ("CREATE TABLE u (id INT PRIMARY KEY)", "ALTER TABLE t MODIFY a BIGINT NOT NULL"):
                with pytest.raises(SqlError, match=r"worker 1 is down \(its process [0-9]+ has ended\)"):
                    await db.sql(text)
            # A busy machine starts a worker slowly.
            monkeypatch.setattr(noria.runtime.cluster.absent_workers, "CHANGE_WAIT_S", 300)
            session = db.sessions.connect(Client("a", "", db.sessions.processes.number(), "localhost", False))
            waits = asyncio.ensure_future(complete(session, "CREATE TABLE u (id INT PRIMARY KEY)", ()))
            await until_shown(db, "a change of the program.*'waits', '?1'?, '?2'?.*worker 1 is down")
            for i in mine:  # other statements are answered
                assert await db.sql(READ, i) == [(i % 3,)]
                await db.sql(f"UPDATE t SET a = 5 WHERE id = {i}")
            await db.sql(f"KILL QUERY {session.connection_id}")
            with pytest.raises(SqlError, match="interrupted"):
                await within(waits, 10)
            assert await db.sql("SHOW NORIA MIGRATIONS") == [] and mine
            made = asyncio.ensure_future(db.sql("CREATE TABLE u (id INT PRIMARY KEY)"))
            await until_shown(db, "a change of the program")
            db.spawn(1)
            await within(made, 60)
            await db.sql("INSERT INTO u VALUES (1), (2), (3), (4)")
            assert await db.sql("SELECT COUNT(*) FROM u") == [(4,)]
            assert await db.sql("SELECT COUNT(*), SUM(a = 5) FROM t") == [(40, len(mine))]
        finally:
            await db.stop()

    run(test, 200)

