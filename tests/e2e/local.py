"""A database inside this process that MySQL clients can connect to: the embedded runtime behind a MySQL listener.

Starts in a tenth of a second and has no Spark, so what no view can answer is error 1235.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mysql.connector
import pymysql

from noria.client.embedded import EmbeddedTransport
from noria.control.policy import Policy
from noria.dataflow.packets import Ask, Evict
from noria.server.listening import listening
from noria.server.mysql import MysqlServer, account, listen

REPLY_BYTES = 2**20  # replies are kept, as a server keeps them


def views_at_once(embedded: Any) -> None:
    """From now on every SELECT is given a view when it is asked for the first time."""
    embedded._program.policy = Policy(one_shots=0)


class LocalServer:
    def __init__(self, directory: Path, memory_limit: int | None = None):
        self._embedded = EmbeddedTransport(directory, memory_limit)
        self._executor = self._embedded._executor
        self._executor.replies.bound(REPLY_BYTES)
        self._mysql: MysqlServer = self._embedded._run(
            listen(listening("127.0.0.1", 0, ""), self._embedded._sessions, {"": account("")}))

    def connect(self) -> Any:
        return pymysql.connect(host="127.0.0.1", port=self._mysql.address[1], user="root", autocommit=True,
                               read_timeout=120, write_timeout=120, ssl_disabled=True)

    def connector(self) -> Any:
        """By the driver that has prepared statements."""
        return mysql.connector.connect(host="127.0.0.1", port=self._mysql.address[1], user="root", autocommit=True,
                                       use_pure=True, ssl_disabled=True)

    def evict(self, nbytes: int | None = None) -> None:
        """Forget everything partial, or least recently read keys of so many bytes."""
        self._embedded._run(self._embedded._link.ask(Evict(0, nbytes)))

    def ask(self, what: str, argument: str = "") -> Any:
        return self._embedded._run(self._executor.ask(Ask(0, what, argument)))

    def validate(self) -> None:
        """Every state equals a recomputation; raises what is violated."""
        self.ask("validate")

    def close(self) -> None:
        self._embedded._run(self._stop())
        self._embedded.close()

    async def _stop(self) -> None:
        self._mysql.close()
        self._mysql.abort()
        await self._mysql.wait_closed()
