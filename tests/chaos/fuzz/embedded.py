"""A database in this process, on this thread: the real worker, program and executor on one event loop, without Spark.

Keeps true: while the loop does not run, the worker is idle, so a test may step it by itself.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from noria.control.program import Program
from noria.runtime.link.inprocess import InProcessLink
from noria.runtime.worker.worker_main import WorkerConfig
from noria.server.answering.executor import Executor
from noria.server.sessions.sessions import Sessions
from noria.views.reader import attach

T = TypeVar("T")
SHARED_MEMORY = Path("/dev/shm")
PROGRAM = (
    "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20), n BIGINT, d DECIMAL(10,2), x DOUBLE, day DATE, at DATETIME,"
    " b VARBINARY(20), u TINYINT UNSIGNED, UNIQUE KEY (s))",
    "CREATE TABLE bag (k INT, v VARCHAR(20), j JSON)",
    "CREATE VIEW by_s AS SELECT id, s, n FROM t WHERE s = ?",
    "CREATE VIEW by_n_d AS SELECT id, n, d, x FROM t WHERE n = ? AND d = ?",
    "CREATE VIEW by_range AS SELECT id, n FROM t WHERE id >= ? AND id < ?",
    "CREATE VIEW by_day AS SELECT day, COUNT(*) AS c, MIN(x) AS lo, MAX(n) AS hi FROM t WHERE day = ? GROUP BY day",
    "CREATE VIEW joined AS SELECT t.id, bag.v, bag.j FROM t JOIN bag ON bag.k = t.id WHERE t.id = ?",
    "CREATE VIEW lefts AS SELECT t.id, bag.v FROM t LEFT JOIN bag ON bag.k = t.u WHERE t.u = ?",
    "CREATE MATERIALIZED VIEW totals AS SELECT v, COUNT(*) AS c, SUM(k) AS s FROM bag GROUP BY v",
    "CREATE VIEW tops AS SELECT id, x FROM t WHERE u = ? ORDER BY x DESC, id LIMIT 3",
    "CREATE VIEW by_b AS SELECT id, b FROM t WHERE b = ?",
)
ROWS = ("INSERT INTO t VALUES " + ", ".join(
    f"({i}, 'text {i}', {i % 4}, {i % 4}.50, {i}.25, '2024-01-0{i % 9 + 1}', '2024-01-01 00:00:{i:02}', 'b{i}',"
    f" {i % 5})" for i in range(40)), "INSERT INTO bag VALUES " + ", ".join(
    f"({i % 9}, 'v{i % 3}', '[{i}]')" for i in range(60)))


class Embedded:
    """`run` gives the loop to a coroutine until it is done."""

    def __init__(self, directory: Path, program: tuple[str, ...] = PROGRAM, rows: tuple[str, ...] = ROWS,
                 run_dir: Path | None = None):
        self.config = WorkerConfig(0, 1, "", directory / "data", run_dir or directory / "run", 1)
        self.loop = asyncio.new_event_loop()
        self.link = InProcessLink(self.config)
        self.program = Program(self.link)
        self.link.on_hello = self.program.welcome
        self.executor = Executor(self.program, self.link, lambda worker: attach(str(self.views)), None, 2**22)
        self.sessions = Sessions(self.executor)
        self.run(self.link.start())
        for text in (*program, *rows):
            self.sql(text)

    @property
    def views(self) -> Path:
        return self.config.run_dir / "views"

    @property
    def worker(self) -> Any:
        return self.link.hosted

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def sql(self, text: str, values: list[Any] | None = None) -> Any:
        return self.run(self.sessions.run(text, values or []))[-1]

    def close(self) -> None:
        self.run(self.link.close())
        self.loop.close()


def quick_directory(tmp_path: Path) -> Path:
    """Where a sync costs nothing, if there is such a place; it is removed by `forget`."""
    if not SHARED_MEMORY.is_dir():
        return tmp_path
    path = SHARED_MEMORY / f"noria-fuzz-{abs(hash(str(tmp_path))):x}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    return path


def forget(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
