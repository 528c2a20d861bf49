"""A session of an embedded database, for tests that need one over several statements."""

from __future__ import annotations

from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.server.outcomes import Client
from noria.server.sessions.sessions import complete


class Connection:
    """A session that remembers its database from statement to statement."""

    def __init__(self, db: Any, database: str = ""):
        self._run = db.transport.run
        self.session = db.transport.sessions.connect(Client("root", database, 0, "localhost", False))

    def sql(self, text: str, *values: Any) -> Any:
        async def run() -> Any:
            outcomes = await complete(self.session, text, list(values))
            await self.session.wait_for_own_writes()
            return outcomes[-1]

        return self._run(run())

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(r) for r in self.sql(text, *values).rows]

    def code(self, text: str) -> int:
        """The number of the statement's error; 0 if it has none."""
        try:
            self.sql(text)
        except SqlError as e:
            return e.code
        return 0

    def error(self, text: str) -> str:
        with pytest.raises(SqlError) as caught:
            self.sql(text)
        return f"{caught.value.code} {caught.value.message}"
