"""Runs a plan over rows in memory: those of information_schema, and of WITH RECURSIVE.

Keeps true: it returns the rows that Spark would return for the plan, and rejects operators that it does not implement.
It visits each row, so it is for some thousands of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.errors import not_supported, read_limit_error
from noria.core.expressions.evaluate import certain
from noria.core.expressions.evaluate import compile as compiled
from noria.core.expressions.expr import Call, Col, Const, Expr, conjuncts
from noria.core.limits import INFORMATION_ROWS, NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import fold
from noria.core.types import Field
from noria.core.values import decode, encode
from noria.plan.batch_nodes import Limit, Sort
from noria.plan.constant_row import GivenRows, Nothing
from noria.plan.mir import Agg, Aggregate, Base, Distinct, Filter, Join, Mir, Project, UnionAll

Row = tuple[int, ...]  # codes
Rows = Callable[[str, Mapping[str, str]], Sequence[Sequence[Any]]]


def run(plan: Mir, rows: Rows) -> list[tuple[Any, ...]]:
    """Return the plan's rows, in its order.  Raises SqlError 1235 for an operator that is not implemented here, and
    3024 if a join has too many rows.

    rows: returns the rows of a table, by its name, as Python values.  It also gets the folded texts that columns must
    equal, by their names in lower case, and may leave out rows with others.
    """
    runner = _PlanRun(rows)
    return [tuple(decode(c, f.type, runner.symbols) for c, f in zip(row, plan.fields, strict=True))
            for row in runner.run(plan)]


def can_run(plan: Mir) -> bool:
    """Whether the plan reads no table and has only operators that are exact here."""
    return isinstance(plan, Nothing | GivenRows | Filter | Project | Join | Distinct | UnionAll | Aggregate) and (
        not isinstance(plan, Aggregate) or not plan.group) and all(map(can_run, plan.inputs))


class _PlanRun:
    def __init__(self, rows: Rows):
        self._rows = rows
        self.symbols = PlainSymbols()

    def run(self, plan: Mir) -> list[Row]:
        if isinstance(plan, Base):
            return self._base(plan, {})
        if isinstance(plan, Nothing):
            return []
        if isinstance(plan, GivenRows):
            return [tuple(encode(v, f.type, self.symbols) for v, f in zip(row, plan.fields, strict=True))
                    for row in plan.rows]
        if isinstance(plan, Limit):
            rows = self.run(plan.input)[plan.offset:]
            return rows if plan.limit is None else rows[:plan.limit]
        if isinstance(plan, UnionAll):
            return self.run(plan.left) + self.run(plan.right)
        step = _STEPS.get(type(plan))
        if step is None:
            raise not_supported("this in a query of information_schema", "ask for the rows, and work on them")
        return step(self, plan)

    def _base(self, plan: Base, equal: Mapping[str, str]) -> list[Row]:
        return [tuple(encode(v, f.type, self.symbols) for v, f in zip(row, plan.fields, strict=True))
                for row in self._rows(plan.table.name, equal)]

    def filter(self, plan: Filter) -> list[Row]:
        below = plan.input
        batch = (Batch.from_rows(self._base(below, _equal(plan.predicate, below)), below.width)
                 if isinstance(below, Base) else self._batch(below))
        return batch.where(certain(plan.predicate)(batch, self.symbols)).rows()

    def project(self, plan: Project) -> list[Row]:
        batch = self._batch(plan.input)
        return _rows([compiled(e)(batch, self.symbols) for e in plan.exprs])

    def join(self, plan: Join) -> list[Row]:
        left, right = self.run(plan.left), self.run(plan.right)
        places = [[pair[side] for pair in plan.on] for side in (0, 1)]
        by_key: dict[Row, list[int]] = {}
        for n, key in enumerate(self._keys(right, plan.right.fields, places[1])):
            if all(c != NULL_CODE or i in plan.null_safe for i, c in enumerate(key)):
                by_key.setdefault(key, []).append(n)
        keys = self._keys(left, plan.left.fields, places[0])
        if sum(len(by_key.get(key, ())) for key in keys) > INFORMATION_ROWS:
            raise read_limit_error(INFORMATION_ROWS)
        pairs = [(n, m) for n, key in enumerate(keys) for m in by_key.get(key, ())]
        if plan.residual is not None and pairs:
            both = Batch.from_rows([left[n] + right[m] for n, m in pairs], plan.width)
            mask = certain(plan.residual)(both, self.symbols).tolist()
            pairs = [pair for pair, kept in zip(pairs, mask, strict=True) if kept]
        out = [left[n] + right[m] for n, m in pairs]
        if plan.outer:
            matched = {n for n, _ in pairs}
            out += [row + (NULL_CODE,) * plan.right.width for n, row in enumerate(left) if n not in matched]
        return out

    def distinct(self, plan: Distinct) -> list[Row]:
        rows = self.run(plan.input)
        return list(dict(zip(self._keys(rows, plan.fields, range(plan.width)), rows, strict=True)).values())

    def aggregate(self, plan: Aggregate) -> list[Row]:
        rows, fields = self.run(plan.input), plan.input.fields
        groups: dict[Row, list[Row]] = {} if plan.group else {(): []}
        for key, row in zip(self._keys(rows, fields, plan.group), rows, strict=True):
            groups.setdefault(key, []).append(row)
        return [tuple(members[0][c] for c in plan.group) + tuple(self._fold(a, members, fields) for a in plan.aggs)
                for members in groups.values()]

    def _fold(self, agg: Agg, rows: list[Row], fields: Sequence[Field]) -> int:
        if agg.column is None:
            return len(rows)
        column = agg.column
        some = [row for row in rows if row[column] != NULL_CODE]
        if agg.function == "count":
            return len(some)
        if agg.function not in ("min", "max"):
            raise not_supported(f"{agg.function.upper()} in a query of information_schema", "work it out of the rows")
        ordered = self._sorted(some, fields, ((column, agg.function == "max"),))
        return ordered[0][column] if ordered else NULL_CODE

    def sort(self, plan: Sort) -> list[Row]:
        return self._sorted(self.run(plan.input), plan.fields, plan.order)

    def _sorted(self, rows: list[Row], fields: Sequence[Field], order: Sequence[tuple[int, bool]]) -> list[Row]:
        for column, descending in reversed(order):
            rows = sorted(rows, key=lambda row: self._rank(row[column], fields[column]), reverse=descending)
        return rows

    def _rank(self, code: int, field: Field) -> tuple[bool, int | bytes]:
        """Return a sort key: NULL is first, and texts are in the order of their collation."""
        if code == NULL_CODE:
            return False, 0
        if not field.type.is_text:
            return True, code
        return True, self.symbols.text(self._folded(code, field)).encode()

    def _folded(self, code: int, field: Field) -> int:
        return int(self.symbols.fold_table[code]) if field.type.folds and code != NULL_CODE else code

    def _keys(self, rows: list[Row], fields: Sequence[Field], columns: Sequence[int]) -> list[Row]:
        """Return a key for each row.  Two keys are equal if SQL calls the values equal."""
        folds: Codes = self.symbols.fold_table
        out = []
        for c in columns:
            codes = [row[c] for row in rows]
            out.append([int(folds[k]) if k != NULL_CODE else k for k in codes] if fields[c].type.folds else codes)
        return list(zip(*out, strict=True)) if out else [()] * len(rows)

    def _batch(self, plan: Mir) -> Batch:
        return Batch.from_rows(self.run(plan), plan.width)


def _equal(predicate: Expr, base: Base) -> dict[str, str]:
    """The folded texts that the predicate requires of columns, by their names in lower case."""
    found = {}
    for term in conjuncts(predicate):
        if isinstance(term, Call) and term.op == "eq":
            columns = [a for a in term.args if isinstance(a, Col)]
            texts = [a.value for a in term.args if isinstance(a, Const) and isinstance(a.value, str)]
            if columns and texts:
                found[base.fields[columns[0].index].name.lower()] = fold(texts[0])
    return found


_STEPS: dict[type[Mir], Callable[[_PlanRun, Any], list[Row]]] = {
    Filter: _PlanRun.filter, Project: _PlanRun.project, Join: _PlanRun.join, Distinct: _PlanRun.distinct,
    Aggregate: _PlanRun.aggregate, Sort: _PlanRun.sort,
}


def _rows(columns: Sequence[Codes]) -> list[Row]:
    return [tuple(row) for row in np.stack(columns).T.tolist()]
