"""Executes statements that may move rows between workers (design/decisions.md, 7): evaluated on one, applied on
several.

    met             the rows of this worker that an INSERT's rows conflict with
    work_out        what a statement would do: a `Move` for each worker that it concerns
    check_unique    raises an error if rows to be added on any worker repeat a UNIQUE value of rows stored here

Keeps true: evaluation changes nothing.  A row is part of the `Move` for the worker that owns it.
"""

from __future__ import annotations

import numpy as np

from noria.core.batch import Codes
from noria.core.keys import shard_of
from noria.core.statements import Insert, Move, Statement, StatementEffect
from noria.core.symbols import Symbols
from noria.storage.statements import effects, writer
from noria.storage.statements.find import FoundRows
from noria.storage.statements.stage import TableStage

_LENGTH = 2  # bytes before a key that hold its length


def met(stage: TableStage, statement: Insert, symbols: Symbols) -> tuple[bytes, ...]:
    """The packed rows that share a key or an entry in a UNIQUE index with a row of the INSERT.

    In a table without a primary key, each is preceded by its row number here.  Raises SqlError if a row of the INSERT
    does not fit the table.
    """
    keys = writer.met(stage, statement, symbols)
    rows = stage.rows_of(keys)
    return tuple(rows if stage.table.key else map(_numbered, keys, rows))


def work_out(stage: TableStage, statement: Statement, rows: tuple[bytes, ...], symbols: Symbols,
             workers: int) -> StatementEffect:
    """Evaluate a statement over this worker's rows and `rows`, those of other workers that it conflicts with."""
    table = stage.table
    theirs = [] if table.key else [_number_of(r) for r in rows]
    here = {b"\xfe" + n.to_bytes(8, "big"): key for n, key in enumerate(theirs)}  # keys that no row of this worker has
    if rows:
        codes = table.codes(rows if table.key else [r[_LENGTH + len(k):] for r, k in zip(rows, theirs, strict=True)])
        stage.add(effects.addition(stage, list(here) or table.keys(codes), codes))
    before = len(stage.effects)
    result = writer.run(stage, statement, symbols)
    if result.error is not None:
        return StatementEffect(result, {})
    renews = isinstance(statement, Insert) and statement.renews
    left, removed, _, added = stage.moved(before) if renews else stage.changed(stage.delta(before), before)
    leaves, comes = (_owners(stage, some, symbols, workers) for some in (removed, added))
    packed = table.rows(added)
    return StatementEffect(result, {
        w: (Move(table.name, tuple(here.get(left[r], left[r]) for r in np.flatnonzero(leaves == w).tolist()),
                 tuple(packed[r] for r in np.flatnonzero(comes == w).tolist())),)
        for w in sorted({*leaves.tolist(), *comes.tolist()})})


def check_unique(stage: TableStage, removed: tuple[bytes, ...], added: tuple[bytes, ...]) -> None:
    """Check as `BaseStore.check_unique` does."""
    table = stage.table
    if removed:
        stage.add(effects.removal(stage, FoundRows(list(removed), table.codes(stage.rows_of(list(removed))))))
    rows = table.codes(added)
    for index in table.unique_indexes:
        effects.refuse_taken(stage, index, table.index_keys(index, rows, table.keys(rows)), rows)


def _numbered(key: bytes, row: bytes) -> bytes:
    return len(key).to_bytes(_LENGTH, "big") + key + row


def _number_of(row: bytes) -> bytes:
    return row[_LENGTH : _LENGTH + int.from_bytes(row[:_LENGTH], "big")]


def _owners(stage: TableStage, rows: Codes, symbols: Symbols, workers: int) -> Codes:
    by = stage.table.definition.sharded_by or ()
    return shard_of([rows[c] for c in by], [stage.table.types[c] for c in by], workers, symbols)
