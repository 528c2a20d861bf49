"""Runs write statements against staged tables: INSERT in its four modes, UPDATE, DELETE, and TRUNCATE of few rows.

It also runs one worker's part of a statement that moves rows between workers (`moving`).  A statement works on all its
rows at once.  If rows of one REPLACE, IGNORE or ON DUPLICATE KEY UPDATE conflict with each other, they run in rounds,
so that each row sees the one before.

Keeps true: a statement that raises SqlError leaves its stage unchanged.  Keys and UNIQUE indexes hold after every
statement, not within one: UPDATE t SET id = id + 1 works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.errors import (
    InvariantViolation,
    SqlError,
    auto_increment_exhausted,
    generated_value,
    read_limit_error,
    view_changed,
    wrong_value_count,
)
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.expressions.coerce import integer_bounds
from noria.core.expressions.expr import Col, Expr, substitute
from noria.core.integers import codes_of, span
from noria.core.statements import (
    DEFAULT,
    NEW,
    Clear,
    Delete,
    Insert,
    Load,
    Move,
    Staged,
    Statement,
    Update,
    WriteResult,
    named_columns,
)
from noria.core.symbols import Symbols
from noria.core.types import Column
from noria.core.values import convert, default_code
from noria.dataflow.graph.protocols import StoreBroken
from noria.storage.statements.effects import (
    Assignments,
    addition,
    assign,
    in_key_order,
    raise_mark,
    refuse_taken,
    remembered,
    removal,
    update_rows,
)
from noria.storage.statements.find import FoundRows, find
from noria.storage.statements.parents import refuse_orphans, undo
from noria.storage.statements.stage import TableStage
from noria.storage.tables.computed import Computed, defaults_of, fill
from noria.storage.tables.rules import broken, error_of
from noria.storage.tables.table import Index, StoredTable

Mask = npt.NDArray[np.bool_]
Conflicts = list[tuple[Index | None, Mask]]


def run(stage: TableStage, statement: Statement, symbols: Symbols) -> WriteResult:
    """Run one statement on its table's stage; return an error as part of the result."""
    mark = stage.mark()
    try:
        refuse_gone(stage.table, statement)
        if isinstance(statement, Insert):
            return _Insert(stage, statement, symbols).run()
        if isinstance(statement, Clear):
            return _clear(stage, statement, symbols)
        if isinstance(statement, Move):
            return _move(stage, statement)
        assert not isinstance(statement, Load), "files do not go through a stage"
        assert not isinstance(statement, Staged), "the store merges what is staged"
        found = find(stage, statement.where, symbols)
        if stage.guard is not None:
            stage.guard.found(found.keys)
        if isinstance(statement, Delete):
            stage.add(removal(stage, found))
            return WriteResult(affected=len(found.keys))
        new = _assigned(stage, statement, found.codes, symbols)
        changed = update_rows(stage, found, new, symbols)
        return WriteResult(changed, remembered(statement.assignments, new), len(found.keys))
    except SqlError as error:
        undo(stage, mark, error)
        return WriteResult(error=bare(error))
    except (InvariantViolation, StoreBroken):
        raise
    except Exception as bug:
        if stage.limits is None:
            raise
        stage.undo(mark)
        return WriteResult(error=stage.limits.defect(bug))


def _clear(stage: TableStage, statement: Clear, symbols: Symbols) -> WriteResult:
    """Remove all rows and reset AUTO_INCREMENT; as in MySQL, the result counts no rows."""
    if stage.counters.rows > statement.most:
        raise read_limit_error(statement.most)
    stage.add(removal(stage, find(stage, None, symbols)))
    stage.counters = stage.counters._replace(auto_increment=0)
    return WriteResult()


def bare(error: SqlError) -> SqlError:
    """A copy of the error without its traceback, whose frames would keep the database open."""
    return SqlError(error.code, error.state, error.message)


def joins(statement: Statement, first: Statement) -> bool:
    """True if the INSERT can run as one statement together with those from `first` on."""
    return (isinstance(statement, Insert) and isinstance(first, Insert)
            and statement.on_duplicate == first.on_duplicate == "error" and statement.columns == first.columns
            and statement.keeps_zero == first.keeps_zero and statement.parents == first.parents
            and isinstance(statement.rows, (list, tuple)) and isinstance(first.rows, (list, tuple)))


def run_inserts(stage: TableStage, statements: list[Insert], symbols: Symbols) -> list[WriteResult]:
    """Run plain INSERTs of the same columns, which clients sent at the same time, as one statement.

    If one of them fails, they run one after the other.
    """
    sizes = [len(s.rows) for s in statements]
    rows = [row for s in statements for row in s.rows]
    ends = list(accumulate(sizes))
    numbered = [end - size + r for s, size, end in zip(statements, sizes, ends, strict=True) for r in s.numbered]
    merged = _Insert(stage, statements[0]._replace(rows=rows, numbered=numbered), symbols)
    mark = stage.mark()
    try:
        refuse_gone(stage.table, statements[0])
        merged.run()
    except (InvariantViolation, StoreBroken):
        raise
    except Exception:  # run one by one, each statement gets its own error
        stage.undo(mark)
        return [run(stage, statement, symbols) for statement in statements]
    if merged.ids is None:
        alike = {size: WriteResult(size) for size in set(sizes)}
        return [alike[size] for size in sizes]
    ids, made = merged.ids.tolist(), merged.generated_ids()
    return [WriteResult(size, next((i for i in made[end - size : end] if i), 0), row_id=ids[end - 1] if size else 0)
            for size, end in zip(sizes, ends, strict=True)]


def refuse_gone(table: StoredTable, statement: Statement) -> None:
    """Raise SqlError 1412 if a column that the statement was planned with has been dropped."""
    if not table.dropped or isinstance(statement, Clear | Move | Load | Staged):
        return
    if not table.dropped.isdisjoint(named_columns(statement)):
        raise view_changed(table.name)


def _assigned(stage: TableStage, statement: Update, rows: Codes, symbols: Symbols) -> Codes:
    return assign(stage.table.definition, statement.assignments, rows, rows, symbols)


def _move(stage: TableStage, statement: Move) -> WriteResult:
    """Remove and add the rows of a Move.  Raises SqlError 1062 if an added row's key is taken."""
    table, removed = stage.table, list(statement.removed)
    there = stage.get(table.family, removed)
    if None in there:
        raise SqlError(*UNKNOWN_ERROR, f"a row of {table.name} went before it was moved: try again")
    if removed:
        stage.add(removal(stage, FoundRows(removed, table.codes([row for row in there if row is not None]))))
    if not statement.added:
        return WriteResult()
    rows = table.codes(statement.added)
    if table.key:
        keys = table.keys(rows)
        refuse_taken(stage, None, keys, rows)
    else:
        first = stage.counters.row_number + 1
        stage.counters = stage.counters._replace(row_number=first + rows.shape[1] - 1)
        keys = table.bag_keys(first, rows.shape[1])
    for index in table.unique_indexes:
        refuse_taken(stage, index, table.index_keys(index, rows, keys), rows)
    stage.add(addition(stage, *in_key_order(keys, rows)))
    raise_mark(stage, rows)
    return WriteResult()


# ------------------------------------------------------------------ INSERT
def met(stage: TableStage, statement: Insert, symbols: Symbols) -> list[bytes]:
    """The keys of stored rows that share a key, or an entry in a UNIQUE index, with a row of the INSERT."""
    return _Insert(stage, statement, symbols).met()


class _Insert:
    """Runs one INSERT or REPLACE."""

    def __init__(self, stage: TableStage, statement: Insert, symbols: Symbols):
        self.stage, self.statement, self.symbols = stage, statement, symbols
        self.table = stage.table
        self.ids: Codes | None = None  # after the run: the AUTO_INCREMENT value of each row
        self.generated: Sequence[int] = ()  # rows whose value was generated here
        self.pending: list[tuple[Computed, Codes]] = []  # defaults that read other columns, and the rows that need them
        self.remembered = 0  # the value of LAST_INSERT_ID(value) in an updated row
        self.met_rows: set[int] = set()  # rows that were not added because they conflict with others

    def run(self) -> WriteResult:
        codes = self._convert()
        rows = codes.shape[1]
        if not rows:
            return WriteResult()
        if not self.table.key:
            first = self.stage.counters.row_number + 1
            self.stage.counters = self.stage.counters._replace(row_number=first + rows - 1)
            keys = self.table.bag_keys(first, rows)
        else:
            keys = self.table.keys(codes)
        broken = self._broken(codes)
        if broken is not None and self.statement.on_duplicate == "ignore":
            return self._without(codes, keys, broken)
        conflicts = self._conflicts(codes, keys)
        if broken is not None:
            self._refuse(codes, broken, conflicts)
        if not conflicts:
            self.stage.add(addition(self.stage, *in_key_order(keys, codes)))
            if self.statement.parents:
                refuse_orphans(self.stage, self.statement.parents, codes, self.symbols)
            return self._result(rows)
        if self.statement.on_duplicate == "error":
            raise self._taken_error(codes, conflicts)
        alone = any(index is not None for index, _ in conflicts) or self._moves_keys()
        return self._result(self._rounds(codes, keys, alone))

    def _taken_error(self, codes: Codes, conflicts: Conflicts) -> SqlError:
        index, mask = min(conflicts, key=lambda c: int(c[1].argmax()))
        return self.table.duplicate(index, codes[:, mask.argmax()])

    # ---------------------------------------------------------------- CHECK
    def _broken(self, codes: Codes) -> Mask | None:
        """The mask of rows that break a CHECK; None if there are none."""
        if not self.table.rules:
            return None
        mask = broken(self.table.rules, codes, self.symbols)
        return mask if mask.any() else None

    def _refuse(self, codes: Codes, mask: Mask, conflicts: Conflicts) -> None:
        """Raise the error of the first row that breaks a CHECK, or whose key is taken."""
        first = int(mask.argmax())
        if self.statement.on_duplicate == "error" and any(int(m.argmax()) < first for _, m in conflicts):
            raise self._taken_error(codes, conflicts)
        raise error_of(self.table.rules, codes[:, first], self.symbols)

    def _without(self, codes: Codes, keys: list[bytes], mask: Mask) -> WriteResult:
        """Run INSERT IGNORE without the rows that break a CHECK."""
        self.met_rows.update(np.flatnonzero(mask).tolist())
        rows = np.flatnonzero(~mask).tolist()
        alone = bool(self.table.unique_indexes)
        return self._result(self._rounds(codes, keys, alone, rows))

    def met(self) -> list[bytes]:
        """The keys of stored rows that its rows conflict with, in any index."""
        codes = self._convert()
        keys = self.table.keys(codes) if self.table.key else self.table.bag_keys(1, codes.shape[1])
        stored = self.stage.get(self.table.family, keys) if self.table.key else ()
        found = [k for k, v in zip(keys, stored, strict=False) if v is not None]
        for index in self.table.unique_indexes:
            holders = self.stage.get(index.family, self.table.index_keys(index, codes, keys))
            found += [h for h in holders if h is not None]
        return list(dict.fromkeys(found))

    def _moves_keys(self) -> bool:
        """True if ON DUPLICATE KEY UPDATE assigns a key column."""
        keys = {c for cols in (self.table.key, *(i.columns for i in self.table.unique_indexes)) for c in cols}
        return any(column in keys for column, _ in self.statement.assignments)

    def _result(self, affected: int) -> WriteResult:
        met = len(self.met_rows) if self.statement.on_duplicate == "update" else 0
        if self.ids is None:
            return WriteResult(affected, self.remembered, met)
        first = next((r for r in self._numbered() if r not in self.met_rows), None)
        made = self.remembered if first is None else int(self.ids[first])
        return WriteResult(affected, made, met, row_id=int(self.ids[-1]))

    def _numbered(self) -> Sequence[int]:
        """The rows whose AUTO_INCREMENT value was generated, here or where the statement was routed."""
        return self.generated if len(self.generated) else self.statement.numbered

    def generated_ids(self) -> list[int]:
        """For each row the AUTO_INCREMENT value that was generated, or 0."""
        assert self.ids is not None
        made, rows = np.zeros(len(self.ids), np.int64), codes_of(self._numbered())
        made[rows] = self.ids[rows]
        return made.tolist()

    # ---------------------------------------------------------------- values to codes
    def _convert(self) -> Codes:
        definition, positions = self.table.definition, self.statement.columns
        rows, columns = self._values()
        codes = np.empty((self.table.width, rows), np.int64)
        if not rows:
            return codes
        for position, column in enumerate(definition.columns):
            if position not in positions and not column.generated and column.computed != "default":
                codes[position] = default_code(column, self.symbols)
        if definition.defaulted:
            columns = self._defaulted(codes, columns)
        for position, values in zip(positions, columns, strict=True):
            if definition.columns[position].generated:
                raise generated_value(definition.columns[position].name, definition.name)
            column = definition.columns[position]
            if column.computed == "default":  # NULL stands for DEFAULT
                column = replace(column, nullable=True)
            codes[position] = convert(values, column, 1, self.symbols)
        for default, rows_of in self.pending:
            codes[default.at, rows_of] = default.codes(codes[:, rows_of], self.symbols)
        if definition.auto_increment is not None:
            self._generate(codes[definition.auto_increment], definition.columns[definition.auto_increment])
            self.ids = codes[definition.auto_increment].copy()
        if definition.generated:
            fill(definition, codes, self.symbols)
        return codes

    def _defaulted(self, codes: Codes, columns: Sequence[Any]) -> Sequence[Any]:
        """Find the rows that need a default which reads other columns.  Returns the values without the word DEFAULT."""
        positions, columns = self.statement.columns, list(columns)
        every = np.arange(codes.shape[1])
        for default in defaults_of(self.table.definition):
            wanted = every
            if default.at in positions:
                values = columns[positions.index(default.at)]
                wanted = every[:0] if isinstance(values, pa.Array | pa.ChunkedArray) else np.array(
                    [row for row, value in enumerate(values) if value is DEFAULT], np.int64)
                if len(wanted):
                    columns[positions.index(default.at)] = [None if v is DEFAULT else v for v in values]
            if len(wanted):
                self.pending.append((default, wanted))
        return columns

    def _values(self) -> tuple[int, Sequence[Any]]:
        """The number of rows, and the values of each named column."""
        rows, width = self.statement.rows, len(self.statement.columns)
        if isinstance(rows, (pa.RecordBatch, pa.Table)):
            if rows.num_columns != width:
                raise wrong_value_count(1)
            return rows.num_rows, rows.columns
        if not len(rows):
            return 0, ()
        if set(map(len, rows)) != {width}:
            raise wrong_value_count(next(n for n, row in enumerate(rows, 1) if len(row) != width))
        return len(rows), [list(map(itemgetter(column), rows)) for column in range(width)]

    def _generate(self, codes: Codes, column: Column) -> None:
        """Fill in AUTO_INCREMENT values, in row order; explicit values raise the counter."""
        wanted = np.flatnonzero(self.statement.is_numbered(codes))
        mark = self.stage.counters.auto_increment
        if not len(wanted):
            mark = max(mark, int(codes.max()))
        elif len(wanted) == len(codes):
            mark += len(codes)
        else:
            pending = set(wanted.tolist())
            for row, code in enumerate(codes.tolist()):
                mark = mark + 1 if row in pending else max(mark, code)
                codes[row] = mark if row in pending else code
        if mark > integer_bounds(column)[1]:
            raise auto_increment_exhausted(column.name)
        if len(wanted) == len(codes):
            codes[:] = span(mark + 1 - len(codes), len(codes))
        self.generated = wanted.tolist()
        self.stage.counters = self.stage.counters._replace(auto_increment=mark)

    # ---------------------------------------------------------------- keys that are taken
    def _conflicts(self, codes: Codes, keys: list[bytes]) -> Conflicts:
        """For the key and each unique index: the mask of rows whose entry a stored or an earlier row has."""
        found: Conflicts = []
        if self.table.key and not self._surely_new():
            found.append((None, self._taken(self.table.family, keys)))
        for index in self.table.unique_indexes:
            mask = self._taken(index.family, self.table.index_keys(index, codes, keys))
            found.append((index, mask))
        return [(index, mask) for index, mask in found if mask.any()]

    def _surely_new(self) -> bool:
        """True if all keys are newly generated AUTO_INCREMENT values, which are above every stored one."""
        return (self.table.key == (self.table.definition.auto_increment,)
                and len(self.generated) == len(self.statement.rows))

    def _taken(self, family: str, keys: list[bytes]) -> Mask:
        taken = np.array([v is not None for v in self.stage.get(family, keys)], np.bool_)
        if len(set(keys)) < len(keys):
            seen: set[bytes] = set()
            for row, key in enumerate(keys):
                if key in seen:
                    taken[row] = True
                seen.add(key)
        return taken

    # ---------------------------------------------------------------- REPLACE, IGNORE, ON DUPLICATE KEY UPDATE
    def _rounds(self, codes: Codes, keys: list[bytes], alone: bool, some: Sequence[int] | None = None) -> int:
        """Run rows so that those with the same key see each other in order; return how many were affected.

        alone: a UNIQUE index is involved, so any row may conflict with any other and each runs in its own round.
        some: the rows to run; None for all.
        """
        wanted = range(len(keys)) if some is None else some
        if alone:
            rounds = [[row] for row in wanted]
        else:
            turns: dict[bytes, int] = {}
            rounds = []
            for row in wanted:
                key = keys[row]
                turn = turns[key] = turns.get(key, -1) + 1
                if turn == len(rounds):
                    rounds.append([])
                rounds[turn].append(row)
        step = {"ignore": self._ignore, "replace": self._replace, "update": self._update}
        run_round = step[self.statement.on_duplicate]
        return sum(run_round(codes[:, rows], [keys[r] for r in rows], rows) for rows in rounds)

    def _victims(self, codes: Codes, keys: list[bytes]) -> list[bytes | None]:
        """For each row the key of a stored row that it conflicts with: by primary key, else by a UNIQUE index."""
        victims: list[bytes | None] = [None] * len(keys)
        if self.table.key:
            stored = self.stage.get(self.table.family, keys)
            victims = [k if v is not None else None for k, v in zip(keys, stored, strict=True)]
        for index in self.table.unique_indexes:
            holders = self.stage.get(index.family, self.table.index_keys(index, codes, keys))
            victims = [h if v is None else v for v, h in zip(victims, holders, strict=True)]
        return victims

    def _add(self, codes: Codes, keys: list[bytes], rows: list[int]) -> int:
        if rows:
            self.stage.add(addition(self.stage, [keys[r] for r in rows], codes[:, rows]))
        return len(rows)

    def _ignore(self, codes: Codes, keys: list[bytes], at: list[int]) -> int:
        victims = self._victims(codes, keys)
        self.met_rows.update(at[r] for r, v in enumerate(victims) if v is not None)
        return self._add(codes, keys, [r for r, v in enumerate(victims) if v is None])

    def _replace(self, codes: Codes, keys: list[bytes], at: list[int]) -> int:
        """Count 2 for a row that replaces another, 1 for a new one.  Count 1 for an unchanged row of a table with one
        unique key, and 2 in others, because there MySQL deletes it and inserts it again."""
        affected, rows = 0, list(range(len(keys)))
        unchanged = 1 if len(self.table.unique_indexes) + bool(self.table.key) == 1 else 2
        while rows:  # a row may replace one by its key and others by UNIQUE indexes
            victims = self._victims(codes[:, rows], [keys[r] for r in rows])
            meets = [(r, v) for r, v in zip(rows, victims, strict=True) if v is not None]
            if not meets:
                break
            found = self._found([v for _, v in meets])
            same = (found.codes == codes[:, [r for r, _ in meets]]).all(axis=0) & (not self.statement.renews)
            again = {r for (r, _), equal in zip(meets, same.tolist(), strict=True) if equal}
            removed = np.flatnonzero(~same)
            self.stage.add(removal(self.stage, found.take(removed)))
            affected += len(removed) + unchanged * len(again)
            rows = [r for r in rows if r not in again]
            if not len(removed):
                break
        return affected + self._add(codes, keys, rows)

    def _update(self, codes: Codes, keys: list[bytes], at: list[int]) -> int:
        """Count 1 for a new row, 2 for an updated one, 0 for an unchanged one."""
        victims = self._victims(codes, keys)
        rows = [r for r, v in enumerate(victims) if v is not None]
        affected = self._add(codes, keys, [r for r, v in enumerate(victims) if v is None])
        if rows:
            found = self._found([v for v in victims if v is not None])
            inputs = np.concatenate([found.codes, codes[:, rows]])
            new = assign(self.stage.table.definition, self._assignments(), found.codes, inputs, self.symbols)
            affected += 2 * update_rows(self.stage, found, new, self.symbols)
            self._stand(new, [at[r] for r in rows])
            self.remembered = remembered(self.statement.assignments, new) or self.remembered
        return affected

    def _stand(self, new: Codes, rows: list[int]) -> None:
        """Record that updated rows replace these rows of the statement."""
        self.met_rows.update(rows)
        if self.ids is not None:
            self.ids[rows] = new[self.table.definition.auto_increment]

    def _assignments(self) -> Assignments:
        """The assignments, over the stored row followed by the new one."""
        def place(c: Col) -> Expr:
            return c if c.index < NEW else Col(c.type, c.nullable, c.index - NEW + self.table.width)

        return tuple((at, substitute(e, place)) for at, e in self.statement.assignments)

    def _found(self, keys: list[bytes]) -> FoundRows:
        return FoundRows(keys, self.table.codes(self.stage.rows_of(keys)))
