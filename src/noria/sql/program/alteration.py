"""Computes the ALTER TABLE between two definitions of a table, part by part.

Only this module knows which changes ALTER TABLE can make; it returns the other differences as messages.  Columns and
indexes are the same if their names are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from noria.core.identifiers import quote_identifier
from noria.core.types import Column, ForeignKey, IndexDef, TableDef
from noria.sql.program.definition_text import (
    check_text,
    column_text,
    default_text,
    foreign_key_text,
    index_text,
    part_text,
    primary_key_parts,
    text_literal,
)
from noria.sql.statements.defaults import KINDS
from noria.sql.statements.keys import PRIMARY

Names = tuple[str, ...]
COPY = "make a new table, copy the rows, and drop the old one"


def alteration(was: TableDef, want: TableDef, drop: bool, called: Callable[[str], str] = quote_identifier
               ) -> tuple[Names, Names]:
    """Return the parts of the ALTER TABLE from `was` to `want`, and messages about changes that it cannot make.

    `drop`: drop the columns that `want` does not have; without it each is a message.  `called`: how to write the name
    of a table to which a FOREIGN KEY refers.
    """
    columns = {c.name.lower(): c for c in _there(was)}
    wrong = [*_order_differs(was, want)]
    key = key_of(want)
    gone = [c for c in _there(was) if c.name.lower() not in _called(want)]
    if not drop:
        wrong += [f"table '{was.name}' has a column '{c.name}' that the new program has not: --drop drops it with its "
                  f"values; if it is to be called otherwise, ALTER TABLE {quote_identifier(was.name)} RENAME COLUMN "
                  f"{quote_identifier(c.name)} TO … first" for c in gone]
    parts = [f"DROP COLUMN {quote_identifier(c.name)}" for c in gone]
    for c in _there(want):
        old = columns.get(c.name.lower())
        if old is None:
            parts.append(f"ADD COLUMN {column_text(c)}")
            if not _comes_last(was, want, c):
                wrong.append(f"column '{c.name}' of table '{was.name}' is new: a new column is added behind the "
                             f"others; else {COPY}")
        elif _bare(old) != _bare(replace(c, nullable=old.nullable) if c.name.lower() in key else c):
            parts.append(f"MODIFY COLUMN {column_text(c)}")
        elif _default(old) != _default(c):
            parts.append(f"ALTER COLUMN {quote_identifier(c.name)} " +
                         (f"SET DEFAULT {default_text(c)}" if _default(c) else "DROP DEFAULT"))
    dropped, added = _indexes(was, want)
    if [p.lower() for p in primary_key_parts(want)] != [p.lower() for p in primary_key_parts(was)]:
        dropped = (*["DROP PRIMARY KEY"] * bool(was.primary_key), *dropped)
        added = (*[f"ADD PRIMARY KEY ({', '.join(primary_key_parts(want))})"] * bool(key), *added)
    gone_checks, new_checks = _checks(was, want)
    gone_keys, new_keys = _foreign_keys(was, want, called)
    dropped, added = (*gone_keys, *gone_checks, *dropped), (*added, *new_keys, *new_checks)
    if want.comment != was.comment:
        added = (*added, f"COMMENT = {text_literal(want.comment)}")
    if want.first_id > was.first_id:
        added = (*added, f"AUTO_INCREMENT = {want.first_id}")
    return (*dropped, *parts, *added), tuple(wrong)


def lost(was: TableDef, want: TableDef) -> set[str]:
    """Folded names of the columns that are dropped, or whose type or nullability changes."""
    there = {c.name.lower(): c for c in _there(want)}
    found = ((c, there.get(c.name.lower())) for c in _there(was))
    return {c.name.lower() for c, now in found
            if now is None or (now.type, now.nullable) != (c.type, c.nullable)}


def _called(table: TableDef) -> set[str]:
    return {c.name.lower() for c in _there(table)}


def _there(table: TableDef) -> list[Column]:
    """The columns in their shown order."""
    return [table.columns[i] for i in table.shown]


def _order_differs(was: TableDef, want: TableDef) -> Iterator[str]:
    here, there = [c.name.lower() for c in _there(was)], [c.name.lower() for c in _there(want)]
    if [c for c in here if c in there] != [c for c in there if c in here]:
        yield f"the columns of table '{was.name}' are in another order in the new program: {COPY}"


def _comes_last(was: TableDef, want: TableDef, column: Column) -> bool:
    known, there = {c.name.lower() for c in _there(was)}, _there(want)
    return all(c.name.lower() not in known for c in there[there.index(column) :])


def _bare(c: Column) -> tuple[object, ...]:
    """The properties that ALTER COLUMN cannot change."""
    made = (c.computed, c.expression) if c.generated else ()
    return c.type, c.nullable, c.auto_increment, c.update_now, c.comment, *made


def _default(c: Column) -> tuple[object, ...]:
    """The column's default; () for none or NULL."""
    if c.default_now:
        return ("now",)
    if c.computed in KINDS:
        return c.computed, c.expression
    return (c.default,) if c.has_default and c.default is not None else ()


def key_of(table: TableDef) -> Names:
    """Folded names of the primary key's columns."""
    return _columns(table, table.primary_key)


def _columns(table: TableDef, places: Iterable[int]) -> Names:
    return tuple(table.columns[i].name.lower() for i in places)


def _indexes(was: TableDef, want: TableDef) -> tuple[Names, Names]:
    """The parts about indexes: those before new columns (renames, drops) and those after (new indexes)."""
    old, new = _by_name(was), _by_name(want)
    same = {n for n, i in old.items() if n in new and _index(was, i) == _index(want, new[n])}
    gone = {n: i for n, i in old.items() if n not in same}
    come = {n: i for n, i in new.items() if n not in same}
    before: list[str] = []
    for name, index in list(come.items()):
        renamed = next((n for n, i in gone.items() if _index(was, i) == _index(want, index)), None)
        if renamed is not None and name not in old:
            here, wanted = gone.pop(renamed).name, come.pop(name).name
            before.append(f"RENAME INDEX {quote_identifier(here)} TO {quote_identifier(wanted)}")
    before += [f"DROP INDEX {quote_identifier(i.name)}" for i in gone.values()]
    behind = [f"ADD {index_text(want, i)}" for i in come.values()]
    return tuple(before), tuple(behind)


def _checks(was: TableDef, want: TableDef) -> tuple[Names, Names]:
    """The parts about CHECKs: those before new columns (drops) and those after (new ones, [NOT] ENFORCED)."""
    old, new = ({c.name.lower(): c for c in table.checks} for table in (was, want))
    same = {n for n, c in new.items() if n in old and old[n].text == c.text}
    switched = [new[n] for n in new if n in same and old[n].enforced != new[n].enforced]
    return (tuple(f"DROP CHECK {quote_identifier(c.name)}" for n, c in old.items() if n not in same),
            (*(f"ADD {check_text(c)}" for n, c in new.items() if n not in same),
             *(f"ALTER CHECK {quote_identifier(c.name)} {'' if c.enforced else 'NOT '}ENFORCED" for c in switched)))


def _foreign_keys(was: TableDef, want: TableDef, called: Callable[[str], str]) -> tuple[Names, Names]:
    """The parts about FOREIGN KEYs: those before new columns (drops) and those after (new ones)."""
    old, new = ({k.name.lower(): k for k in table.foreign_keys} for table in (was, want))
    same = {n for n, k in new.items() if n in old and _foreign_key(was, old[n]) == _foreign_key(want, k)}
    return (tuple(f"DROP FOREIGN KEY {quote_identifier(k.name)}" for n, k in old.items() if n not in same),
            tuple(f"ADD {foreign_key_text(want, k, called)}" for n, k in new.items() if n not in same))


def _foreign_key(table: TableDef, key: ForeignKey) -> tuple[object, ...]:
    return (_columns(table, key.columns), key.parent.lower(), tuple(c.lower() for c in key.parent_columns),
            key.on_delete, key.on_update)


def _by_name(table: TableDef) -> Mapping[str, IndexDef]:
    return {i.name.lower(): i for i in (*table.indexes, *table.fulltext) if i.name != PRIMARY}


def _index(table: TableDef, index: IndexDef) -> tuple[object, ...]:
    parts = [(part_text(table.columns[c]).lower(), prefix) for c, prefix in table.parts(index)]
    return parts, index.unique, index in table.fulltext
