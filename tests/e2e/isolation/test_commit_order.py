"""A commit that follows another one is answered after it, also if that one is visible at one worker only so far."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, run, until
from noria.dataflow.messages.packets import Decide
from noria.runtime.routing.write_routing import by_worker

ROWS = 40


class DelayedDecisions:
    """Keeps each `Decide` for worker 1 until `release`."""

    def __init__(self, server: LocalServer, monkeypatch: pytest.MonkeyPatch):
        self._server, self._kept = server, list[tuple[Any, asyncio.Future[Any]]]()
        self._link = server.executor.staging.staging_workers[1]
        self._submit = self._link.submit
        monkeypatch.setattr(self._link, "submit", self._keep)

    def _keep(self, body: Any) -> asyncio.Future[Any]:
        if not isinstance(body, Decide):
            return self._submit(body)
        self._kept.append((body, asyncio.get_running_loop().create_future()))
        return self._kept[-1][1]

    def release(self) -> None:
        async def send() -> None:
            self._link.submit = self._submit
            for body, future in self._kept:
                future.set_result(await self._submit(body))

        self._server.embedded.run(send())


FOLLOWING = {
    "statement": ("UPDATE t SET v = v + 10 WHERE id = {}", ()),
    "transaction": ("COMMIT", ("BEGIN", "UPDATE t SET v = v + 10 WHERE id = {}")),
    "locks only": ("COMMIT", ("BEGIN", "SELECT v FROM t WHERE id = {} FOR UPDATE")),
    "writes another table": ("COMMIT", ("BEGIN", "SELECT v FROM t WHERE id = {} FOR UPDATE",
                                        "INSERT INTO u VALUES (1)")),
}


@pytest.mark.parametrize("first", ["transaction", "statement"])
@pytest.mark.parametrize("following", FOLLOWING)
def test_an_answer_waits_for_the_commit_that_it_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str,
                                                        following: str) -> None:
    last, before = FOLLOWING[following]
    server = LocalServer(tmp_path / "data", workers=2)
    try:
        a, b, reader = (server.connect() for _ in range(3))
        run(a, "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)", "CREATE TABLE u (id INT PRIMARY KEY)",
            "INSERT INTO t VALUES " + ", ".join(f"({n}, 0)" for n in range(ROWS)))
        keys = by_worker(server.executor.program.table("t"), [(n,) for n in range(ROWS)], 2)
        here, there = keys[0][0][0], keys[1][0][0]
        order = server.executor.staging.commit_order
        decisions = DelayedDecisions(server, monkeypatch)
        if first == "transaction":
            run(a, "BEGIN", "UPDATE t SET v = 1")
        one = Waiting(a, "COMMIT" if first == "transaction" else "UPDATE t SET v = 1")
        until(lambda: run(reader, f"SELECT v FROM t WHERE id = {here}") == [(1,)])
        assert run(reader, f"SELECT v FROM t WHERE id = {there}") == [(0,)] and len(order) == 1
        run(b, *(text.format(here) for text in before))
        two = Waiting(b, last.format(here))
        until(lambda: bool(run(reader, "DO 1") or len(order) == 2))
        assert one.waits() and two.waits()
        decisions.release()
        assert two.end() is None
        assert run(reader, f"SELECT v FROM t WHERE id = {there}") == [(1,)]
        assert one.end() is None and len(order) == 0
    finally:
        server.close()


def test_kill_ends_the_wait_of_a_statement_that_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = LocalServer(tmp_path / "data", workers=2)
    try:
        a, b, reader = (server.connect() for _ in range(3))
        run(a, "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)",
            "INSERT INTO t VALUES " + ", ".join(f"({n}, 0)" for n in range(ROWS)))
        keys = by_worker(server.executor.program.table("t"), [(n,) for n in range(ROWS)], 2)
        here, order = keys[0][0][0], server.executor.staging.commit_order
        decisions = DelayedDecisions(server, monkeypatch)
        one = Waiting(a, "UPDATE t SET v = 1")
        until(lambda: run(reader, f"SELECT v FROM t WHERE id = {here}") == [(1,)])
        two = Waiting(b, f"UPDATE t SET v = v + 10 WHERE id = {here}")
        until(lambda: bool(run(reader, "DO 1") or len(order) == 2))
        run(reader, f"KILL QUERY {b.thread_id()}")
        assert two.end() is None and one.waits()
        assert run(reader, f"SELECT v FROM t WHERE id = {here}") == [(11,)]
        decisions.release()
        assert one.end() is None
    finally:
        server.close()
