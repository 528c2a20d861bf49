"""A view whose restoring ends its worker each time is left out; one that is restored is not counted any more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import noria
from noria.control.program import Program
from noria.core.limits import POISON_DEATHS
from noria.dataflow.messages import packets
from noria.sql.parse import parse
from sql.catalogs import DictCatalog

RECIPE = tuple(f"CREATE VIEW {name} AS SELECT id, a FROM t WHERE a = ? AND id > {i}" for i, name in enumerate("uvw"))


class Link:
    """A link whose worker ends when it restores a view in `deadly`."""

    workers = 1

    def __init__(self) -> None:
        self.deadly: set[str] = set()
        self.restored: list[str] = []

    async def recover(self, body: packets.Migrate) -> packets.Migrated:
        views = [s.view.name for s in body.steps if isinstance(s, packets.AddView)]
        if self.deadly.intersection(views):
            raise ConnectionError("the worker ended")
        self.restored += views
        return packets.Migrated(0)

    def submit(self, body: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()


def hello() -> Any:
    (command,) = parse("CREATE TABLE t (id INT PRIMARY KEY, a INT)", DictCatalog())
    return SimpleNamespace(tables=(replace(command.table, table_id=1),), recipe=RECIPE)


async def started(program: Program) -> int:
    """Start workers until one has restored the program; return how many ended."""
    for ended in range(20):
        try:
            await program.welcome(hello())
            return ended
        except ConnectionError:
            pass
    raise AssertionError("no worker came up")


def test_a_view_that_ends_workers_is_left_out() -> None:
    async def play() -> None:
        link = Link()
        program = Program(link)
        link.deadly = {"v"}
        assert await started(program) <= 1 + POISON_DEATHS
        assert link.restored[-2:] == ["u", "w"] and "v" in program.catalog.broken
        link.restored.clear()
        assert await started(program) == 0, "it is remembered"
        assert sorted(link.restored) == ["u", "w"]

    asyncio.run(play())


def test_a_view_that_was_restored_is_not_counted() -> None:
    async def play() -> None:
        link = Link()
        program = Program(link)
        for _ in range(3 * POISON_DEATHS):  # each time another cause ends the worker once
            link.deadly = {"v"}
            with pytest.raises(ConnectionError):
                await program.welcome(hello())
            link.deadly = set()
            assert await started(program) == 0
        assert not program.catalog.broken

    asyncio.run(play())


def test_a_copying_alter_takes_no_placeholders_name(tmp_path: Path) -> None:
    with noria.open(tmp_path / "d", workers=2) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
        db.sql("CREATE VIEW z AS SELECT 1 AS n")
        with pytest.raises(noria.SqlError) as told:
            db.sql("ALTER TABLE t RENAME TO z, DROP PRIMARY KEY, ADD PRIMARY KEY (a)")
        assert told.value.code == 1050
