"""Computes what removed, added or changed rows do to a table's families (`stage.Effect`).

Keeps true: an effect changes a row together with its key and all maintained indexes.  UNIQUE holds after each effect.
"""

from __future__ import annotations

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.errors import division_by_zero
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Call, Expr
from noria.core.expressions.functions import zero_divisors
from noria.core.expressions.library.numbers import REMEMBERED
from noria.core.limits import NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import TableDef
from noria.core.values import recode
from noria.storage.statements.find import FoundRows
from noria.storage.statements.stage import MANY_ROWS, Effect, FamilyChange, TableStage, key_order
from noria.storage.tables.computed import fill
from noria.storage.tables.rules import refuse_broken
from noria.storage.tables.table import Index

Assignments = tuple[tuple[int, Expr], ...]
_NO_KEYS: list[bytes] = []


def _none(stage: TableStage) -> Codes:
    return np.empty((stage.table.width, 0), np.int64)


def removal(stage: TableStage, found: FoundRows) -> Effect:
    table = stage.table
    changes = [FamilyChange(table.family, found.keys, _NO_KEYS, _NO_KEYS)]
    if found.keys:
        changes += [FamilyChange(i.family, table.index_keys(i, found.codes, found.keys), _NO_KEYS, _NO_KEYS)
                    for i in table.maintained]
    return Effect(changes, found.codes, _none(stage))


def addition(stage: TableStage, keys: list[bytes], codes: Codes) -> Effect:
    table = stage.table
    changes = [FamilyChange(table.family, _NO_KEYS, keys, table.rows(codes))]
    for index in table.maintained:
        entries, targets = table.index_keys(index, codes, keys), keys
        if len(keys) >= MANY_ROWS:
            order = key_order(entries)
            entries, targets = [entries[r] for r in order], [keys[r] for r in order]
        changes.append(FamilyChange(index.family, _NO_KEYS, entries, targets))
    return Effect(changes, _none(stage), codes)


def in_key_order(keys: list[bytes], codes: Codes) -> tuple[list[bytes], Codes]:
    """Rows in the order of their keys, which RocksDB ingests a third faster; few rows are returned as they are."""
    if len(keys) < MANY_ROWS:
        return keys, codes
    order = key_order(keys)
    return [keys[r] for r in order], codes[:, order]


def update_rows(stage: TableStage, found: FoundRows, new: Codes, symbols: Symbols) -> int:
    """Replace found rows by new ones where they differ; return how many did.

    Raises SqlError 1062 if a key is taken, 3819 if a new row breaks a CHECK.
    """
    rows = np.flatnonzero((found.codes != new).any(axis=0))
    if not len(rows):
        return 0
    table, old = stage.table, found.codes
    keys = found.keys
    if len(rows) < len(keys):
        old, new, keys = old[:, rows], new[:, rows], [keys[r] for r in rows.tolist()]
    refuse_broken(table.rules, new, symbols)
    touched = {c for c in range(table.width) if bool((old[c] != new[c]).any())}
    new_keys = table.keys(new) if touched & set(table.key) else keys
    changes = [_moved(stage, None, keys, new_keys, table.rows(new), new)]
    for index in table.maintained:
        if new_keys is keys and not touched & set(index.columns):
            continue
        before, after = table.index_keys(index, old, keys), table.index_keys(index, new, new_keys)
        changes.append(_moved(stage, index, before, after, new_keys, new))
    stage.add(Effect(changes, old, new))
    raise_mark(stage, new)
    return len(rows)


def _moved(stage: TableStage, index: Index | None, before: list[bytes], after: list[bytes], values: list[bytes],
           new: Codes) -> FamilyChange:
    """The change of one family when rows' keys in it change from `before` to `after`."""
    family = stage.table.family if index is None else index.family
    if before is after:
        return FamilyChange(family, _NO_KEYS, after, values)
    moved = [r for r, (b, a) in enumerate(zip(before, after, strict=True)) if b != a]
    if index is None or index.unique:
        left = {before[r] for r in moved}
        targets = [after[r] for r in moved]
        taken: set[bytes] = set()
        for r, target, held in zip(moved, targets, stage.get(family, targets), strict=True):
            if target in taken or (held is not None and target not in left):
                raise stage.table.duplicate(index, new[:, r])
            taken.add(target)
    return FamilyChange(family, [before[r] for r in moved], after, values)


def refuse_taken(stage: TableStage, index: Index | None, keys: list[bytes], rows: Codes) -> None:
    """Raise SqlError 1062 for a row whose key (or entry in an index) another row has."""
    seen: set[bytes] = set()
    family = stage.table.family if index is None else index.family
    for row, (key, held) in enumerate(zip(keys, stage.get(family, keys), strict=True)):
        if held is not None or key in seen:
            raise stage.table.duplicate(index, rows[:, row])
        seen.add(key)


def raise_mark(stage: TableStage, rows: Codes) -> None:
    """Raise the AUTO_INCREMENT counter to the greatest value in the rows."""
    column = stage.table.definition.auto_increment
    if column is not None and rows.shape[1]:
        top = int(rows[column].max())
        if top > stage.counters.auto_increment:
            stage.counters = stage.counters._replace(auto_increment=top)


def remembered(assignments: Assignments, new: Codes) -> int:
    """The value of `column = LAST_INSERT_ID(value)` in the last of the new rows; 0 if there is none."""
    if not new.shape[1]:
        return 0
    columns = [c for c, e in assignments if isinstance(e, Call) and e.op == REMEMBERED]
    code = int(new[columns[-1], -1]) if columns else NULL_CODE
    return 0 if code == NULL_CODE else code


def assign(table: TableDef, assignments: Assignments, old: Codes, inputs: Codes, symbols: Symbols) -> Codes:
    """The old rows after the assignments, whose expressions read `inputs`, with their generated columns."""
    new = old.copy()
    batch = Batch.of(inputs)
    for column, expr in assignments:
        if any(evaluate.predicate(zero)(batch, symbols).any() for zero in zero_divisors(expr)):
            raise division_by_zero()
        codes = evaluate.compile(expr)(batch, symbols)
        new[column] = recode(codes, expr.type, table.columns[column], 1, symbols)
    if table.generated:
        fill(table, new, symbols)
    return new
