"""Transactions and the end of a worker: one that had a part there ends with error 1213, a new one waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.serving import Served, until
from e2e.transactions.waiting import Waiting, refused, run
from noria.core.errors.codes import LOCK_DEADLOCK

pytestmark = pytest.mark.spark
ROWS = 12  # at each of three workers there are some


@pytest.fixture(scope="module", params=[1, 3])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("lost") / "data", "--workers", str(request.param))
    try:
        with server.connect() as connection:
            run(connection, "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)",
                "INSERT INTO t VALUES " + ", ".join(f"({i}, 0)" for i in range(ROWS)))
        yield server
    finally:
        server.close()


def end_workers(server: Served, wait: bool = True) -> None:
    """Kill all workers; wait for the next ones."""
    pids = list(server.health()["worker_pids"])
    server.kill(*(f"worker {w}" for w in range(len(pids))))
    until("the loss is known", lambda: server.health()["worker"] != "up" or server.health()["worker_pids"] != pids)
    if wait:
        server.wait_up()


def test_a_transaction_that_had_a_part_at_a_lost_worker_is_rolled_back(server: Served) -> None:
    """The part may be a snapshot, which must not move, or only locks, which others have meanwhile."""
    writer, reader, *lockers = (server.connect() for _ in range(6))
    run(writer, "UPDATE t SET v = 0")
    for connection in (reader, *lockers):
        run(connection, "BEGIN", "SAVEPOINT here")
    assert run(reader, "SELECT SUM(v) FROM t") == [(0,)]
    for connection in lockers:
        assert run(connection, "SELECT v FROM t WHERE id < 3 FOR SHARE") == [(0,), (0,), (0,)]
    run(lockers[-1], "INSERT INTO t VALUES (99, 99)")
    end_workers(server)
    run(writer, "UPDATE t SET v = 5")
    assert refused(reader, "SELECT SUM(v) FROM t") == LOCK_DEADLOCK.number
    for connection, then in zip(lockers, ("COMMIT", "UPDATE t SET v = 7 WHERE id = 1",
                                          "SELECT v FROM t WHERE id = 2 FOR UPDATE", "ROLLBACK TO here"), strict=True):
        assert refused(connection, then) == LOCK_DEADLOCK.number
    for connection in (reader, *lockers):  # outside of any transaction
        assert run(connection, "SELECT SUM(v) FROM t") == [(5 * ROWS,)]


def test_a_new_transaction_waits_for_the_next_worker(server: Served) -> None:
    connections = [server.connect() for _ in range(3)]
    for connection in connections:
        run(connection, "BEGIN")
    end_workers(server, wait=False)
    waiting = [Waiting(connection, statement) for connection, statement in zip(connections, (
        "UPDATE t SET v = v + 1 WHERE id > 5", "SELECT v FROM t WHERE id < 3 FOR UPDATE",
        "SELECT COUNT(*), SUM(v) - SUM(v) FROM t"), strict=True)]
    assert [w.end() for w in waiting] == [None, None, None]
    for connection in connections:
        run(connection, "COMMIT")
