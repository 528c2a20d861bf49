"""A node for the HTTP interface and the Python client: tables in dictionaries, views over them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa

from noria.core.errors import SqlError, duplicate_entry, unknown_table
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.types import BIGINT, TEXT, Column, Field, TableDef
from noria.plan.mir import Base
from noria.plan.view import ViewDef
from noria.server.access.access import Access
from noria.server.logins import LoginGuard
from noria.server.outcomes import Ok, Outcome, ResultSet
from noria.server.sessions.held_transactions import Caller, TokenRefused
from noria.sql.text.databases import Databases

TABLE = TableDef("Words", (Column("id", BIGINT, False), Column("word", TEXT)), (0,), table_id=1)
VIEW = ViewDef("ById", Base(TABLE), (0,), 2, text="SELECT id, word FROM Words WHERE id = ?")


class FakeServices:
    def __init__(self, password: str | None = None) -> None:
        self.access = Access.of("root", password)
        self.guard = LoginGuard()
        self.rows: dict[int, str | None] = {}
        self.statements: list[tuple[str, list[Any]]] = []
        self.up = True

    async def health(self) -> dict[str, Any]:
        return {"status": "ok" if self.up else "recovering"}

    async def stats(self) -> dict[str, Any]:
        return {"reads_total": 7, "views": 1}

    async def ask(self, what: str, argument: str = "") -> Any:
        return [{"id": 0, "does": "table t", "parents": [], "state": "disk", "rows": 3}]

    databases = Databases()

    def place(self, name: str) -> tuple[str, str]:
        return "noria", name

    def catalog_table(self, name: str) -> TableDef | None:
        return TABLE if name.lower() == "words" else None

    def catalog_view(self, name: str) -> ViewDef | None:
        return VIEW if name.lower() == "byid" else None

    def catalog_reader(self, view: ViewDef) -> ViewDef | None:
        return view

    def view_list(self) -> list[dict[str, Any]]:
        return [{"name": "ById"}]

    def attachment(self) -> dict[str, Any]:
        return {"path": "/nowhere", "host": "elsewhere"}

    @property
    def transactions(self) -> Any:
        return FakeTransactions(self)

    async def run_sql(self, sql: str, values: list[Any], found_rows: bool = False, database: str = "") -> list[Outcome]:
        self.statements.append((sql, values))
        if sql == "boom":
            raise RuntimeError("a bug")
        if sql.startswith("SELECT"):
            fields = [Field("n", BIGINT), Field("n", TEXT)]
            return [ResultSet(fields, [(1, "é"), (None, None)], [("Note", 1, "slow")])]
        if sql.startswith("INSERT"):
            return [Ok(2, 41, (), "Records: 2")]
        raise SqlError(1064, "42000", f"no: {sql}")

    async def insert(self, table: str, rows: pa.Table, on_duplicate: str) -> int:
        if self.catalog_table(table) is None:
            raise unknown_table(table)
        for id, word in zip(*(c.to_pylist() for c in rows.columns), strict=True):
            if id in self.rows and on_duplicate == "error":
                raise duplicate_entry(str(id), "PRIMARY")
            self.rows[id] = word
        return rows.num_rows

    async def lookup(self, view: str, keys: pa.Table) -> pa.Table:
        if self.catalog_view(view) is None:
            raise unknown_table(view)
        found = [(k, self.rows[k], i) for i, k in enumerate(keys.column(0).to_pylist()) if k in self.rows]
        columns = list(zip(*found, strict=True)) or [(), (), ()]
        arrays = [pa.array(columns[0], pa.int64()), pa.array(columns[1], pa.large_string()),
                  pa.array(columns[2], pa.int64())]
        return pa.Table.from_arrays(arrays, names=["id", "word", "__key"])

    async def set_limit(self, size: str) -> int:
        if size != "64M":
            raise SqlError(1105, "HY000", f"'{size}' is no size")
        return 64 * 2**20

    async def evict(self, nbytes: int | None) -> int:
        return 10**6 if nbytes is None else nbytes

    def permitted(self, request: dict[str, Any], raw: bytes, proof: str | None) -> dict[str, Any]:
        return request

    async def load(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"step": "reading", "done": 1, "total": 2}
        if request["table"] == "bad":
            raise SqlError(1146, "42S02", "no such table")
        yield {"step": "done", "rows": 3, "rejected": 1}

    async def backup(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"checkpoint": "/nowhere"}

    async def verify(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"step": "snapshot"}
        yield {"view": "ById", "agrees": True, "rows": 3}


class FakeTransactions:
    """There is none: a request with a token is refused."""

    def __init__(self, services: FakeServices):
        self._services = services

    async def run(self, caller: Caller, text: str, parameters: list[Any], found_rows: bool = False
                  ) -> tuple[list[Outcome], str | None]:
        if caller.token is not None:
            raise TokenRefused("unknown", UNKNOWN_ERROR, "there is no transaction of this token")
        return await self._services.run_sql(text, parameters, found_rows, caller.database), None

    async def insert(self, caller: Caller, table: str, rows: pa.Table, on_duplicate: str) -> int:
        return await self._services.insert(table, rows, on_duplicate)

    async def lookup(self, caller: Caller, view: str, keys: pa.Table) -> pa.Table:
        return await self._services.lookup(view, keys)

    def leave(self, caller: Caller) -> None:
        """There is nothing to roll back."""
