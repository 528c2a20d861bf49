"""What a worker that came up is taught while its disk is full."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from noria.control.ddl import restore
from noria.control.ddl.restore import brought_back
from noria.core.errors import SqlError
from noria.core.types import INT, Column, TableDef
from noria.dataflow.messages.packets import Migrate, Migrated
from noria.plan.mir import Base
from noria.plan.view import ViewDef

FULL, OTHER = SqlError(1021, "HY000", "Disk full"), SqlError(1105, "HY000", "a defect")
TABLE = TableDef("t", (Column("id", INT, False),), (0,), table_id=1)
VIEW = ViewDef("a", Base(TABLE), (0,), 1)


class Link:
    """Whose worker fails in these ways, one time after the other."""

    def __init__(self, *failing: dict[str, SqlError]):
        self.failing, self.asked = list(failing), list[list[str]]()

    async def recover(self, body: Any) -> Any:
        assert isinstance(body, Migrate) and body.each and not body.durable
        self.asked.append([s.view.name for s in body.steps])
        return Migrated(0, failed=tuple(self.failing.pop(0).items()))


def left_out(link: Link) -> list[str]:
    async def run() -> list[str]:
        views = [VIEW, replace(VIEW, name="B")]
        return [name async for reply in brought_back(link, views, (), 0.0) for name, _ in reply.failed]

    return asyncio.run(run())


def test_there_is_space_after_a_while() -> None:
    link = Link({"a": OTHER, "B": FULL}, {"B": FULL}, {})
    assert left_out(link) == ["a"] and link.asked == [["a", "B"], ["B"], ["B"]]


def test_there_is_none() -> None:
    link = Link(*[{"a": FULL}] * restore.TRIES)
    assert left_out(link) == ["a"] and not link.failing


def test_nothing_is_in_the_way() -> None:
    link = Link({})
    assert left_out(link) == [] and link.asked == [["a", "B"]]
