"""`ProgramMirror`: the tables and views of all workers, as data; computes the effect and the undo of a change. Pure."""

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
from noria.runtime.link.change_queue import Change

Steps = tuple[MigrationStep, ...]


@dataclass(frozen=True)
class ProgramMirror:
    """The tables and views (`plan.view.ViewDef`) by name, and the recipe."""

    tables: dict[str, TableDef] = field(default_factory=dict)
    views: dict[str, Any] = field(default_factory=dict)
    recipe: tuple[str, ...] = ()

    @classmethod
    def of(cls, tables: Iterable[TableDef], recipe: tuple[str, ...]) -> ProgramMirror:
        """A mirror of a catalog, without views."""
        return cls({t.name: t for t in tables}, {}, recipe)

    def table(self, number: int) -> TableDef | None:
        return next((t for t in self.tables.values() if t.table_id == number), None)

    def after(self, steps: Sequence[MigrationStep], recipe: tuple[str, ...], failed: Iterable[str] = ()
              ) -> ProgramMirror:
        """The mirror after these steps. `failed`: views that could not be made."""
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
        return ProgramMirror(tables, views, recipe)

    def aside(self, steps: Sequence[MigrationStep]) -> tuple[Steps, Steps]:
        """Split the steps in two. In the first part dropped tables are only renamed, which can be undone. The
        second part drops them when all workers have made the first."""
        tables = {t.table_id: t for t in self.tables.values()}
        kept, drops = list[MigrationStep](), list[MigrationStep]()
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
            drops.append(DropTable(table.name))
        return tuple(kept), tuple(drops)

    def inverse(self, steps: Sequence[MigrationStep]) -> Steps:
        """The steps that undo these steps. None of them may drop a table (see `aside`)."""
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

    def differing(self, steps: Sequence[MigrationStep], target: ProgramMirror) -> Steps:
        """Steps for the views named in `steps`: drop those not in `target`, add those missing here."""
        own = [s for s in steps if isinstance(s, AddView | DropView | RenameView)]
        names = dict.fromkeys(n for s in own for n in _names_of(s))
        drops = [DropView(n) for n in names if n in self.views and n not in target.views]
        return *drops, *(AddView(target.views[n]) for n in names if n in target.views and n not in self.views)

    def refusal(self, steps: Sequence[MigrationStep]) -> SqlError | None:
        """Why several workers cannot make these steps: rows would have to move between workers."""
        for s in steps:
            was = self.table(s.table.table_id) if isinstance(s, AlterTable) else None
            if isinstance(s, AlterTable) and was is not None and place_of(was) != place_of(s.table):
                return not_supported(f"changing what the keys of {was.name} have in common, by which its rows are "
                                     "spread over workers", "change them with ALTER TABLE, by themselves")
        return None

    def made_unique(self, steps: Sequence[MigrationStep]) -> list[tuple[TableDef, tuple[int, ...]]]:
        """The UNIQUE indexes, as table and columns, that these steps add and whose values several workers have."""
        unique = [(s.table, i.columns, self.table(s.table.table_id)) for s in steps if isinstance(s, AlterTable)
                 for i in s.table.spread_unique]
        return [(t, columns) for t, columns, was in unique
                if was is not None and columns not in {i.columns for i in was.spread_unique}]


def _names_of(step: AddView | DropView | RenameView) -> tuple[str, ...]:
    if isinstance(step, AddView):
        return (step.view.name,)
    return (step.view, step.name) if isinstance(step, RenameView) else (step.view,)


def place_of(table: TableDef) -> object:
    """The columns, with their types, that determine the worker of a row."""
    by = table.sharded_by
    types = [table.columns[c].type for c in by or ()]
    return by, [(t.kind, t.scale, t.folds) for t in types]


def of_tables(steps: Sequence[MigrationStep]) -> Steps:
    """The steps that change the catalog."""
    return tuple(s for s in steps if isinstance(s, CreateTable | AlterTable | DropTable))


def catalog_only(body: Change) -> Change:
    """The change as sent to a worker without a graph."""
    return replace(body, steps=of_tables(body.steps), version=0) if isinstance(body, Migrate) else body


def of_views(steps: Sequence[MigrationStep]) -> Steps:
    return tuple(s for s in steps if not isinstance(s, CreateTable | AlterTable | DropTable))


def yielding(steps: Sequence[MigrationStep], idle: Collection[str]) -> Steps:
    """The steps with decided drops of idle views: all workers drop those in `idle`, and none of the others."""
    return tuple(replace(s, idle=False) if isinstance(s, DropView) else s for s in steps
                 if not isinstance(s, DropView) or not s.idle or s.view in idle)


def table_steps(have: ProgramMirror, target: ProgramMirror) -> Steps:
    """The steps that turn the tables of one catalog into those of the other."""
    there = {t.table_id for t in have.tables.values()}
    drops = [DropTable(n) for n, t in have.tables.items() if target.table(t.table_id) is None]
    made = [CreateTable(t) if t.table_id not in there else AlterTable(t) for t in target.tables.values()
            if have.table(t.table_id) != t]
    return (*drops, *made)
