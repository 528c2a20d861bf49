"""A running program as the text that makes it again where there is nothing.

The tables come first, then the views in the order of their making.  A view's text means what it meant when it was
written; where a column that came later would change that (`SELECT *`), the text says when the column came: tables as
they were then, the views of then, ALTER TABLE, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.sql.whole.alteration import alteration
from noria.sql.whole.difference import unchanged
from noria.sql.whole.outline import read
from noria.sql.whole.written import quoted, table_text


@dataclass(frozen=True)
class Kept:
    """A view that runs: its CREATE VIEW, and after how many changes of columns it was written."""

    text: str
    as_of: int


def program_text(tables: Iterable[TableDef], views: Sequence[Kept], counters: Mapping[str, int]) -> str:
    """counters: by a table's name the number that its AUTO_INCREMENT gives next."""
    known = [replace(t, first_id=counters.get(t.name, 1)) for t in tables]
    now = max([0, *(c.added for t in known for c in t.columns)])
    simple = _text([*(table_text(t, t.first_id) for t in known), *(v.text for v in views)])
    if all(v.as_of >= now for v in views):
        return simple
    staged = _staged(known, views, now)
    return simple if _same(simple, staged) else staged


def _staged(tables: Sequence[TableDef], views: Sequence[Kept], now: int) -> str:
    said, stage, made = list[str](), 0, dict[str, TableDef]()

    def until(change: int) -> None:
        for table in tables:
            then, was = table.as_of(change), made.get(table.name)
            if was is None:
                said.append(table_text(then, then.first_id))
            elif (parts := alteration(was, then)[0]):
                said.append(f"ALTER TABLE {quoted(table.name)} {', '.join(parts)}")
            made[table.name] = then

    until(stage)
    for view in views:
        if min(view.as_of, now) > stage:
            stage = min(view.as_of, now)
            until(stage)
        said.append(view.text)
    until(now)
    return _text(said)


def _same(one: str, other: str) -> bool:
    """Do the views of the second text mean the same in the first?"""
    try:
        here, there = read(one), read(other)
        return all(unchanged(name, there, here) for name in there.views)
    except SqlError:  # a name that was clear is not any more
        return False


def _text(statements: Iterable[str]) -> str:
    return "".join(f"{s.rstrip().rstrip(';')};\n\n" for s in statements)
