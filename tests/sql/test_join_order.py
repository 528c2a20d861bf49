"""Joins stand in one order, whatever a query calls its columns: equal queries are equal plans (section 5.1)."""

from __future__ import annotations

import pytest

from noria.core.types import INT, Column, TableDef
from noria.plan.mir import Mir
from noria.sql.parse import parse

TABLES = {name: TableDef(name, (Column("id", INT, False), Column("x", INT), Column("y", INT)), (0,), table_id=i)
          for i, name in enumerate("abc", 1)}


class Tables:
    def table(self, name: str) -> TableDef | None:
        return TABLES.get(name)

    def view(self, name: str) -> None:
        return None


def plan(text: str) -> Mir:
    (command,) = parse(f"CREATE VIEW v AS {text}", Tables())
    return command.view.plan


@pytest.mark.parametrize("one, other", [
    ("SELECT a.id, c.y FROM a JOIN b ON b.x = a.id JOIN c ON c.x = b.id",
     "SELECT p.id, r.y FROM c r, b q, a p WHERE q.id = r.x AND p.id = q.x"),
    ("SELECT p.z, q.w FROM (SELECT id AS i, x + 1 AS z FROM a) p JOIN (SELECT id AS j, x + 2 AS w FROM a) q ON i = j",
     "SELECT p.z, q.w FROM (SELECT id AS j, x + 1 AS z FROM a) p JOIN (SELECT id AS i, x + 2 AS w FROM a) q ON i = j"),
])
def test_names_and_order_of_writing_do_not_matter(one: str, other: str) -> None:
    assert plan(one) == plan(other)
