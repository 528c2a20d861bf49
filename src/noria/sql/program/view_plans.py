"""Plans the text of a view over a set of tables and views, and compares the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from noria.core.types import Field, TableDef
from noria.plan.mir import Base, rebased, tables_of
from noria.plan.optimizer.rewrites import without_copy
from noria.plan.view import ViewDef
from noria.sql.commands import CreateView
from noria.sql.parse import parse


@dataclass(frozen=True)
class StaticCatalog:
    """A catalog of tables and views by folded names."""

    tables: Mapping[str, TableDef]
    views: Mapping[str, ViewDef]

    def table(self, name: str) -> TableDef | None:
        return self.tables.get(name.lower())

    def view(self, name: str) -> ViewDef | None:
        return self.views.get(name.lower())


def planned(text: str, catalog: StaticCatalog) -> ViewDef:
    (command,) = parse(text, catalog)
    assert isinstance(command, CreateView)
    return command.view


def same_view(one: ViewDef, other: ViewDef) -> bool:
    return same_rows(one, other) and _names(one.key_fields) == _names(other.key_fields)


def same_rows(one: ViewDef, other: ViewDef) -> bool:
    """Whether both return the same rows under the same column names, over equal tables."""
    return _bare(one) == _bare(other) and _names(one.fields) == _names(other.fields)


def _bare(view: ViewDef) -> ViewDef:
    """The view without its name, text and number, over tables without primary keys.  A primary key may have shaped the
    plan, but it is no part of its meaning."""
    plan = without_copy(view.plan)
    for name in tables_of(plan):
        plan = rebased(plan, name, lambda b: Base(replace(b.table, primary_key=())))
    return replace(view, name="", text="", definition=0, plan=plan)


def _names(fields: Iterable[Field]) -> list[str]:
    return [f.name for f in fields]
