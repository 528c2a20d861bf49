"""What the text of a view means over given tables and views."""

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
class Tables:
    """A catalog: by folded names."""

    tables: Mapping[str, TableDef]
    views: Mapping[str, ViewDef]

    def table(self, name: str) -> TableDef | None:
        return self.tables.get(name.lower())

    def view(self, name: str) -> ViewDef | None:
        return self.views.get(name.lower())


def planned(text: str, catalog: Tables) -> ViewDef:
    (command,) = parse(text, catalog)
    assert isinstance(command, CreateView)
    return command.view


def same_view(one: ViewDef, other: ViewDef) -> bool:
    return same_rows(one, other) and _names(one.key_fields) == _names(other.key_fields)


def same_rows(one: ViewDef, other: ViewDef) -> bool:
    """Over equal tables, do they give the same rows under the same names?"""
    return _bare(one) == _bare(other) and _names(one.fields) == _names(other.fields)


def _bare(view: ViewDef) -> ViewDef:
    """By what tells a table's rows apart a plan was made, and is not another one."""
    plan = without_copy(view.plan)
    for name in tables_of(plan):
        plan = rebased(plan, name, lambda b: Base(replace(b.table, primary_key=())))
    return replace(view, name="", text="", definition=0, plan=plan)


def _names(fields: Iterable[Field]) -> list[str]:
    return [f.name for f in fields]
