"""The HTTP interface over a real executor, in this process and without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from noria.client.embedded import EmbeddedTransport
from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Inspect
from noria.plan.view import ViewDef
from noria.server.applying import applied
from noria.server.bulk.load_permit import LoadPermit
from noria.server.http.app import make_app
from noria.server.http.server import HttpLimits, HttpServer
from noria.server.listening import listening
from noria.server.sessions.held_transactions import HeldTransactions
from noria.server.settings import SettingsError, parse_size
from noria.sql.text.databases import Databases


class LocalServices:
    """`with LocalServices(directory) as local: ... local.port`.  embedded: an open database, which stays open."""

    def __init__(self, directory: Path, password: str | None = None, bounds: HttpLimits | None = None,
                 embedded: EmbeddedTransport | None = None):
        self.embedded, self._own = embedded or EmbeddedTransport(directory / "data"), embedded is None
        self.executor, self.program = self.embedded.executor, self.embedded.program
        self.access = self.embedded.sessions.access
        self.access.begin("root", password, False)
        self.feeds, self.guard = self.embedded.feeds, self.embedded.sessions.guard
        self._permit = LoadPermit([directory], b"token")
        self.http = HttpServer(make_app(self), None, bounds)
        self.embedded.run(self._start())
        self.port = self.http.address[1]

    async def _start(self) -> None:
        await self.http.start(listening("127.0.0.1", 0, ""))

    def __enter__(self) -> LocalServices:
        return self

    def __exit__(self, *error: object) -> None:
        self.embedded.run(self.feeds.close())
        self.embedded.run(self.http.stop())
        if self._own:
            self.embedded.close()

    def run(self, *texts: str) -> None:
        for text in texts:
            self.embedded.sql(text, [])

    # ------------------------------------------------------------ Services
    async def health(self) -> dict[str, Any]:
        return {"status": "ok"}

    async def stats(self) -> dict[str, Any]:
        return self.executor.stats()

    async def ask(self, what: str, argument: str = "") -> Any:
        return await self.executor.ask(Inspect(0, what, argument))

    @property
    def databases(self) -> Databases:
        return self.program.catalog.databases

    def place(self, name: str) -> tuple[str, str]:
        return self.databases.split(self.program.catalog.resolved(name))

    def catalog_table(self, name: str) -> TableDef | None:
        return self.program.table(self.program.catalog.resolved(name))

    def catalog_view(self, name: str) -> ViewDef | None:
        return self.program.view(self.program.catalog.resolved(name))

    def catalog_reader(self, view: ViewDef) -> ViewDef | None:
        return self.program.reader_now(view)

    def view_list(self) -> list[dict[str, Any]]:
        return self.embedded.sessions.views()

    def attachment(self) -> dict[str, Any]:
        return self.embedded.attachment()

    @property
    def transactions(self) -> HeldTransactions:
        return self.embedded.sessions.held

    async def export(self) -> str:
        return await self.program.exported()

    def apply(self, request: dict[str, Any], user: str, address: str) -> AsyncIterator[dict[str, Any]]:
        return applied(self.executor, self.embedded.sessions, request, user, address)

    async def set_limit(self, size: str) -> int:
        try:
            return parse_size(size)
        except SettingsError as e:
            raise SqlError(1105, "HY000", str(e)) from None

    async def evict(self, nbytes: int | None) -> int:
        return 0

    def permitted(self, request: dict[str, Any], raw: bytes, proof: str | None) -> dict[str, Any]:
        return self._permit.check(request, raw, proof)

    async def load(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        await asyncio.sleep(0)
        yield {"step": "done"}

    def export_permitted(self, request: dict[str, Any], raw: bytes, proof: str | None) -> dict[str, Any]:
        return self._permit.check_export(request, raw, proof)

    async def export_rows(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        await asyncio.sleep(0)
        yield {"step": "done"}

    async def verify(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        await asyncio.sleep(0)
        yield {"step": "done"}
