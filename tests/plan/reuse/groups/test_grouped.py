"""A grouping is recognised by its tables' names."""

from __future__ import annotations

from noria.core.types import INT, Column, TableDef
from noria.plan import mir
from noria.plan.reuse.groups.grouped import grouped
from noria.plan.reuse.sharing import groupings


def test_equal_plans_over_tables_that_are_called_otherwise() -> None:
    """What is known of one is not taken for the other: they are looked for by name."""
    for name in ("before", "after"):
        plan = mir.Distinct(mir.Base(TableDef(name, (Column("x", INT), Column("y", INT)), table_id=1)))
        found = grouped(plan)
        assert found is not None and set(mir.tables_of(found.source)) == {name}
        assert [set(mir.tables_of(g)) for g in groupings(plan)] == [{name}]
