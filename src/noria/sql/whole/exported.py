"""A running program as the text that makes it again where there is nothing.

The tables come first, then the views in the order of their making.  A view's text means what it meant when it was
written; where a change of its tables would change that, it is written anew with the names of now (`restated`); where
that cannot be, the text says when the column came: tables as they were then, the views of then, ALTER TABLE, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from noria.core.errors import not_supported
from noria.core.types import TableDef
from noria.plan.view import ViewDef
from noria.sql.whole.alteration import alteration, lost
from noria.sql.whole.difference import now
from noria.sql.whole.meaning import Tables, planned
from noria.sql.whole.restated import restated
from noria.sql.whole.written import quoted, table_text


@dataclass(frozen=True)
class Kept:
    """A view that runs: its CREATE VIEW, and after how many changes of columns it was written."""

    name: str
    text: str
    as_of: int


def program_text(tables: Iterable[TableDef], views: Sequence[Kept], counters: Mapping[str, int]) -> str:
    """counters: by a table's name the number that its AUTO_INCREMENT gives next."""
    known = [replace(t, first_id=counters.get(t.name, 1)) for t in tables]
    if (texts := _texts_of_now(known, views)) is not None:
        return _text([*(table_text(t, t.first_id) for t in known), *texts])
    return _staged(known, views, max([0, *(c.added for t in known for c in t.columns)]))


def _staged(tables: Sequence[TableDef], views: Sequence[Kept], last: int) -> str:
    said, stage, made = list[str](), 0, dict[str, TableDef]()

    def until(change: int) -> None:
        for table in tables:
            then, was = table.as_of(change), made.get(table.name)
            if was is None:
                said.append(table_text(then, then.first_id))
            else:
                parts, wrong = alteration(was, then, False)
                if wrong or lost(was, then):
                    raise not_supported(f"the text of a program with views that are older than changes of the table "
                                        f"{table.name}, and that mean something else since,",
                                        "say what they mean now: CREATE OR REPLACE VIEW")
                said.extend([f"ALTER TABLE {quoted(table.name)} {', '.join(parts)}"] if parts else [])
            made[table.name] = then

    until(stage)
    for view in views:
        if min(view.as_of, last) > stage:
            stage = min(view.as_of, last)
            until(stage)
        said.append(view.text)
    until(last)
    return _text(said)


def _texts_of_now(tables: Sequence[TableDef], views: Sequence[Kept]) -> list[str] | None:
    """The views' texts over the tables as they are."""
    texts, known, there = list[str](), dict[str, ViewDef](), {t.name.lower(): t for t in tables}
    for view in views:
        text = text_of_now(view, there, known)
        if text is None:
            return None
        texts.append(text)
        known[view.name.lower()] = planned(text, Tables(there, known))
    return texts


def text_of_now(view: Kept, tables: Mapping[str, TableDef], views: Mapping[str, ViewDef]) -> str | None:
    """The CREATE VIEW that means what the view means: as it was written if that does, else with the names of now."""
    if now(view.text, view.as_of, tables, views) is not None:
        return view.text
    return restated(view.text, view.as_of, tables, views)


def _text(statements: Iterable[str]) -> str:
    return "".join(f"{s.rstrip().rstrip(';')};\n\n" for s in statements)
