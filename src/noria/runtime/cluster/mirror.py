"""What all workers have, as far as their link must know: tables and views, and what changes of the program do to them.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from noria.core.errors import SqlError, not_supported
from noria.core.types import BESIDE, TableDef
from noria.dataflow.messages.packets import (
    AddView,
    AlterTable,
    CreateTable,
    DropTable,
    DropView,
    Migrate,
    MigrationStep,
    RenameView,
)
from noria.runtime.link.changes import Change

Steps = tuple[MigrationStep, ...]


@dataclass(frozen=True)
class Mirror:
    """tables and views (`plan.view.ViewDef`) by name."""

    tables: dict[str, TableDef] = field(default_factory=dict)
    views: dict[str, Any] = field(default_factory=dict)
    recipe: tuple[str, ...] = ()

    @classmethod
    def of(cls, tables: Iterable[TableDef], recipe: tuple[str, ...]) -> Mirror:
        """Without any view yet."""
        return cls({t.name: t for t in tables}, {}, recipe)

    def table(self, number: int) -> TableDef | None:
        return next((t for t in self.tables.values() if t.table_id == number), None)

    def after(self, steps: Sequence[MigrationStep], recipe: tuple[str, ...], failed: Iterable[str] = ()) -> Mirror:
        """What these steps make of it.  failed: views that could not be made."""
        tables, views = dict(self.tables), dict(self.views)
        for s in steps:
            if isinstance(s, CreateTable | AlterTable):
                was = next((n for n, t in tables.items() if t.table_id == s.table.table_id), None)
                if was is not None:
                    del tables[was]
                    if was != s.table.name:
                        views = {n: v.with_table(was, s.table.name) for n, v in views.items()}
                tables[s.table.name] = s.table
            elif isinstance(s, DropTable):
                tables.pop(s.table, None)
            elif isinstance(s, AddView):
                views[s.view.name] = s.view
            elif isinstance(s, DropView):
                views.pop(s.view, None)
            elif isinstance(s, RenameView) and s.view in views:
                views[s.name] = replace(views.pop(s.view), name=s.name)
        for name in failed:
            views.pop(name, None)
        return Mirror(tables, views, recipe)

    def aside(self, steps: Sequence[MigrationStep]) -> tuple[Steps, Steps]:
        """These steps, but what they drop of tables only gets another name, which can be taken back; and what drops it
        when all workers have come so far."""
        tables, kept, gone = {t.table_id: t for t in self.tables.values()}, list[MigrationStep](), list[MigrationStep]()
        for s in steps:
            if isinstance(s, CreateTable | AlterTable):
                tables[s.table.table_id] = s.table
            table = next((t for t in tables.values() if isinstance(s, DropTable) and t.name == s.table), None)
            if table is None:
                kept.append(s)
                continue
            if not table.is_beside:
                table = replace(table, name=f"{table.name}{BESIDE}{table.table_id}")
                kept.append(AlterTable(table))
            del tables[table.table_id]
            gone.append(DropTable(table.name))
        return tuple(kept), tuple(gone)

    def inverse(self, steps: Sequence[MigrationStep]) -> Steps:
        """What takes these steps back where they have been made; none drops a table (`aside`)."""
        back: list[MigrationStep] = []
        for s in reversed(steps):
            if isinstance(s, CreateTable):
                back.append(DropTable(s.table.name))
            elif isinstance(s, AlterTable) and (was := self.table(s.table.table_id)) is not None:
                back.append(AlterTable(was))
            elif isinstance(s, AddView):
                back.append(DropView(s.view.name))
            elif isinstance(s, DropView) and s.view in self.views:
                back.append(AddView(self.views[s.view]))
            elif isinstance(s, RenameView):
                back.append(RenameView(s.name, s.view))
        return tuple(back)

    def differing(self, steps: Sequence[MigrationStep], wanted: Mirror) -> Steps:
        """The views of these steps that are there and are not wanted, and the other way round."""
        own = [s for s in steps if isinstance(s, AddView | DropView | RenameView)]
        names = dict.fromkeys(n for s in own for n in _names_of(s))
        gone = [DropView(n) for n in names if n in self.views and n not in wanted.views]
        return *gone, *(AddView(wanted.views[n]) for n in names if n in wanted.views and n not in self.views)

    def refusal(self, steps: Sequence[MigrationStep]) -> SqlError | None:
        """Why these cannot be made by several workers: rows would have to go from one to another."""
        for s in steps:
            was = self.table(s.table.table_id) if isinstance(s, AlterTable) else None
            if isinstance(s, AlterTable) and was is not None and place_of(was) != place_of(s.table):
                return not_supported(f"changing what the keys of {was.name} have in common, by which its rows are "
                                     "spread over workers", "change them with ALTER TABLE, by themselves")
        return None

    def made_unique(self, steps: Sequence[MigrationStep]) -> list[tuple[TableDef, tuple[int, ...]]]:
        """UNIQUE indexes that tables are about to have, and of which several workers have values: table and columns."""
        found = [(s.table, i.columns, self.table(s.table.table_id)) for s in steps if isinstance(s, AlterTable)
                 for i in s.table.spread_unique]
        return [(t, columns) for t, columns, was in found
                if was is not None and columns not in {i.columns for i in was.spread_unique}]


def _names_of(step: AddView | DropView | RenameView) -> tuple[str, ...]:
    if isinstance(step, AddView):
        return (step.view.name,)
    return (step.view, step.name) if isinstance(step, RenameView) else (step.view,)


def place_of(table: TableDef) -> object:
    """What tells where a row is."""
    by = table.sharded_by
    types = [table.columns[c].type for c in by or ()]
    return by, [(t.kind, t.scale, t.folds) for t in types]


def of_tables(steps: Sequence[MigrationStep]) -> Steps:
    """The part of a change that the catalog has."""
    return tuple(s for s in steps if isinstance(s, CreateTable | AlterTable | DropTable))


def catalog_only(body: Change) -> Change:
    """A change of the program, for a worker that has no graph yet."""
    return replace(body, steps=of_tables(body.steps), version=0) if isinstance(body, Migrate) else body


def of_views(steps: Sequence[MigrationStep]) -> Steps:
    return tuple(s for s in steps if not isinstance(s, CreateTable | AlterTable | DropTable))


def yielding(steps: Sequence[MigrationStep], idle: Collection[str]) -> Steps:
    """Those of views that go if they are idle: that is decided for all workers together."""
    return tuple(replace(s, idle=False) if isinstance(s, DropView) else s for s in steps
                 if not isinstance(s, DropView) or not s.idle or s.view in idle)


def between(have: Mirror, want: Mirror) -> Steps:
    """What makes one catalog's tables the other's."""
    there = {t.table_id for t in have.tables.values()}
    gone = [DropTable(n) for n, t in have.tables.items() if want.table(t.table_id) is None]
    made = [CreateTable(t) if t.table_id not in there else AlterTable(t) for t in want.tables.values()
            if have.table(t.table_id) != t]
    return (*gone, *made)
