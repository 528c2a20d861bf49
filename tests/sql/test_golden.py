"""Golden scripts: SQL and what it becomes.

A script is a file of paragraphs: lines that begin with `> ` are a text, the lines after it what it gives.  Write the
texts, run `NORIA_REWRITE_GOLDENS=1 pytest tests/sql/test_golden.py`, read the diff.  Definitions stay for the rest
of the file; a view is shown as its plan.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from noria.core.errors import SqlError
from noria.core.expressions.expr import Expr
from noria.core.statements import DEFAULT, Delete, Insert, Update
from noria.core.types import TableDef
from noria.plan.mir import show
from noria.plan.view import ViewDef
from noria.sql.commands import (
    AlterTable,
    Command,
    CreateTable,
    CreateView,
    Explain,
    Information,
    LockingSelect,
    OutputColumn,
    Select,
    SelectedWrite,
    SelectItems,
    SessionDependent,
)
from noria.sql.expressions.clock import SOME_MOMENT
from sql.catalogs import DictCatalog

SCRIPTS = sorted(Path(__file__).parent.glob("golden/*.txt"))


def described(command: Command) -> list[str]:
    if isinstance(command, CreateTable):
        return _table(command.table)
    if isinstance(command, AlterTable):
        return ["altered", *_table(command.table)] if command.table.foreign_keys else [repr(command)]
    if isinstance(command, CreateView):
        kind = " feed" if command.view.feed else " internal" * command.view.internal
        kind += " materialized" * command.materialized
        return [f"view {command.view.name}{kind}", *_view(command.view)]
    if isinstance(command, Explain):
        return ["explain", *described(command.command)]
    if isinstance(command, SessionDependent):
        return ["at 2026-01-30 12:00:00", *described(command.at(SOME_MOMENT._replace(utc=datetime(2026, 1, 30, 12))))]
    if isinstance(command, LockingSelect):
        rows = [f"locks {t.table.name}, {'exclusively' if t.exclusive else 'shared'}, {command.how}"
                for t in command.locked]
        return [*rows, *_select(command.select), *(() if command.grouped is None else _select(command.grouped))]
    if isinstance(command, Select):
        return _select(command)
    if isinstance(command, Information):
        return ["information", *show(command.query.plan, 1).splitlines()]
    if isinstance(command, Insert):
        lines = [f"insert {command.table} {command.columns} {command.on_duplicate}"]
        rows = [", ".join("DEFAULT" if v is DEFAULT else str(v) if isinstance(v, Expr) else repr(v) for v in r)
                for r in command.rows]
        return lines + [f"  {r}" for r in rows] + [f"  #{c} := {e}" for c, e in command.assignments]
    if isinstance(command, Update):
        sets = [f"  #{c} := {e}" for c, e in command.assignments]
        return [f"update {command.table} where {command.where}", *sets]
    if isinstance(command, Delete):
        return [f"delete {command.table} where {command.where}"]
    if isinstance(command, SelectedWrite):
        parts = [] if command.insert is None else described(command.insert)
        for w in command.targets:
            parts += [f"{'delete' if w.assignments is None else 'update'} {w.table.name}, key at {w.at}"]
            parts += [f"  #{c} := {e}" for c, e in w.assignments or ()]
        selects = command.select if isinstance(command.select, tuple) else (command.select,)
        return [*parts, "of", *(line for s in selects for line in described(s))]
    if isinstance(command, SelectItems):
        return [f"items limit {command.limit}", *(f"  {_item(i)}" for i in command.items)]
    return [repr(command)]


def _item(item: OutputColumn) -> str:
    said = repr(item.value) if item.kind == "value" else f"{item.kind} {item.scope} {item.name}".replace("  ", " ")
    if item.kind == "computed":
        said += f"of {[_item(i) for i in item.arguments]} and {[q.how for q in item.queries]}"
    return f"{item.field.name} {item.field.type} = {said}"


def _table(table: TableDef) -> list[str]:
    lines = [f"table {table.name} primary key {table.primary_key}"]
    for c in table.columns:
        said = [c.name, c.type.sql(), "null" if c.nullable else "not null"]
        said += [f"default {c.default!r}"] if c.has_default else []
        said += ["default now"] if c.default_now else []
        said += ["auto_increment"] if c.auto_increment else []
        lines.append("  " + " ".join(said))
    lines += [f"  {'unique ' if i.unique else ''}index {i.name} {i.columns}" for i in table.indexes]
    return lines + [f"  {k.name}: {k.columns} of {k.parent} ({', '.join(k.parent_columns)}), "
                    f"on delete {k.on_delete.value.lower()}, on update {k.on_update.value.lower()}"
                    for k in table.foreign_keys]


def _view(view: ViewDef) -> list[str]:
    said = [f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in view.fields]
    lines = [f"  shows {', '.join(said)}"]
    lines += [f"  key {', '.join(f'#{k}' for k in view.key)}"] if view.key else []
    order = ", ".join(f"#{c} desc" if descending else f"#{c}" for c, descending in view.order)
    lines += [f"  order {order}"] if view.order else []
    lines += [f"  limit {view.limit} offset {view.offset}"] if view.limit is not None or view.offset else []
    lines += [f"  over nothing {view.empty_row}"] if view.empty_row is not None else []
    lines += ["  after", *show(view.after, 2).splitlines()] if view.after is not None else []
    lines += [f"  asks {view.asks.names}"] if view.asks is not None else []
    return lines + show(view.plan, 1).splitlines()


def _select(select: Select) -> list[str]:
    if select.view is None:
        assert select.batch is not None
        return [f"spark: {select.batch.reason}", *show(select.batch.plan, 1).splitlines()]
    names = [f.name for f in select.view.key_fields]
    found = " AND ".join(a.show(n) for n, a in zip(names, select.lookups, strict=True))
    ends = [f"LIMIT {select.limit}"] * (select.limit is not None) + [f"OFFSET {select.offset}"] * (
        select.offset is not None)
    return [" ".join(["select", *([f"WHERE {found}"] if found else []), *ends]), *_view(select.view)]


def ran(text: str, catalog: DictCatalog) -> list[str]:
    try:
        return [line for command in catalog.run(text) for line in described(command)]
    except SqlError as e:
        return [f"error {e.code} ({e.state}): {e.message}"]


def regenerated(script: str) -> str:
    catalog, out = DictCatalog(), []
    for paragraph in script.split("\n\n"):
        lines = paragraph.splitlines()
        asked = [line for line in lines if line.startswith("> ")]
        kept = [line for line in lines if line.startswith("#")]
        answer = ran("\n".join(line[2:] for line in asked), catalog) if asked else []
        out.append("\n".join([*kept, *asked, *answer]))
    return "\n\n".join(out).rstrip("\n") + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_script(path: Path) -> None:
    new = regenerated(path.read_text())
    if os.environ.get("NORIA_REWRITE_GOLDENS"):
        path.write_text(new)
    assert new == path.read_text()
