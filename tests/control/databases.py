"""Databases of this process, for tests that look behind their statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import noria
from noria.client import Database
from noria.control.program import Program
from noria.dataflow.messages.packets import Inspect


class Opened:
    """A database that can be opened again, and its program."""

    def __init__(self, path: Path, workers: int = 1):
        self.path, self.workers = path, workers
        self.open()

    def open(self) -> None:
        self.db: Database = noria.open(self.path, workers=self.workers)
        self.transport: Any = self.db.transport
        self.program: Program = self.transport.program

    def again(self) -> None:
        self.db.close()
        self.open()

    def ask(self, what: str) -> Any:
        return ask(self.db, what)


def ask(db: Database, what: str) -> Any:
    """What the worker tells of itself."""
    transport: Any = db.transport
    return transport.run(transport.executor.ask(Inspect(0, what)))


def each_worker(db: Database) -> list[Any]:
    """Those behind it, by number."""
    link = db.transport.link
    return [each.hosted for each in getattr(link, "links", [link])]


def of(path: Path, statements: Sequence[str]) -> Iterator[Database]:
    """What a fixture yields: a database in which these have been run."""
    with noria.open(path) as made:
        for text in statements:
            made.sql(text)
        yield made


def readers(db: Database) -> set[str]:
    """What has a reader in the worker."""
    return {name for node in ask(db, "graph") for name in node["views"]}


def shown(db: Database) -> dict[str, tuple[str, str]]:
    """Each view's state and the reason, as SHOW NORIA VIEWS has them."""
    result = db.sql("SHOW NORIA VIEWS")
    return {r[result.columns.index("View")]: (r[result.columns.index("State")], r[result.columns.index("Why")])
            for r in result.rows}
