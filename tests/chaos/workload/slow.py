"""Clients that ask for large results of new shapes and do not read them: everybody else goes on, and no worker ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymysql.constants import COMMAND

from chaos.workload.clients import Failure
from e2e.serving import alive

if TYPE_CHECKING:
    from chaos.faults import Stage

SELECT = ("SELECT a.id AS first_{n}, a.n + {n} AS sum_{n}, REPEAT('x', 180) AS text_{n}, b.id AS second_{n} FROM big a"
          " JOIN big b ON b.n = a.n WHERE a.id >= {n} LIMIT 100000")  # about 20 MB
MOST = 24


def slow_readers(stage: Stage) -> None:
    """They ask, hold their connections for a while, and go."""
    before = [pid for name in stage.named("workers") for pid in stage.pids(name)]
    clients = []
    try:
        for n in range(stage.chance.randrange(4, MOST)):
            clients.append(stage.server.connect())
            clients[-1]._execute_command(COMMAND.COM_QUERY, SELECT.format(n=n))
        stage.lasts(1.0, 5.0)
    finally:
        for c in clients:
            c._force_close()  # `close` would say goodbye first, and there is no reader
    if ended := [pid for pid in before if not alive(pid)]:
        raise Failure(f"workers with processes {ended} ended beside slow readers")
