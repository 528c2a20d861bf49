"""The option "where": comparisons of columns with values, which are looked at where the rows are read.

    id BETWEEN 1000 AND 1999 AND score > 2.5 AND day IN ('2026-01-01', '2026-02-01')

What bounds the first column of the primary key bounds the keys that are read at all.  Texts are no part of it: how they
compare depends on their column's collation, which the option "query" heeds.

Keeps true: a row is read if every comparison is true of it (one with NULL is not).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

_OPS: dict[type[exp.Expression], str] = {exp.EQ: "equal", exp.LT: "less", exp.LTE: "less_equal", exp.GT: "greater",
                                         exp.GTE: "greater_equal"}
_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


@dataclass(frozen=True)
class Comparison:
    """op: of pyarrow.compute, or "in"; values: texts, one but for "in"."""

    column: str
    op: str
    values: tuple[str, ...]

    def holds(self, column: pa.Array) -> pa.Array:
        if self.op == "in":
            return pc.is_in(column, pa.array([self._value(v, column.type) for v in self.values], column.type))
        return getattr(pc, self.op)(column, pa.scalar(self._value(self.values[0], column.type), column.type))

    def _value(self, text: str, kind: pa.DataType) -> Any:
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
                or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            raise ValueError(f"the option \"where\" compares numbers, dates and times, and '{self.column}' is none: "
                             f"read a query "
                             "(option \"query\")")
        try:
            return pa.scalar(text).cast(kind).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise ValueError(f"the option \"where\" compares '{self.column}' with {text}, which is no value of it: "
                             f"{e}") from None


def parsed(text: str) -> tuple[Comparison, ...]:
    if not text.strip():
        return ()
    try:
        tree = sqlglot.parse_one(f"SELECT 1 FROM t WHERE {text}", read="mysql").args["where"].this
    except (sqlglot.errors.SqlglotError, AttributeError, KeyError) as e:
        raise ValueError(f"the option \"where\" is no condition: {e}") from None
    parts = tree.flatten() if isinstance(tree, exp.And) else [tree]
    return tuple(c for part in parts for c in _comparisons(part.unnest()))


def _comparisons(tree: Any) -> list[Comparison]:
    left, right = tree.this, tree.args.get("expression")
    if type(tree) in _OPS and isinstance(left, exp.Expression) and isinstance(right, exp.Expression):
        op = _OPS[type(tree)]
        if isinstance(left, exp.Column):
            return [Comparison(left.name, op, (_literal(right),))]
        if isinstance(right, exp.Column):
            return [Comparison(right.name, _TURNED.get(op, op), (_literal(left),))]
    if isinstance(tree, exp.Between) and isinstance(left, exp.Column):
        return [Comparison(left.name, "greater_equal", (_literal(tree.args["low"]),)),
                Comparison(left.name, "less_equal", (_literal(tree.args["high"]),))]
    if isinstance(tree, exp.In) and isinstance(left, exp.Column) and tree.expressions:
        return [Comparison(left.name, "in", tuple(map(_literal, tree.expressions)))]
    raise _unknown(tree)


def _literal(tree: exp.Expression) -> str:
    if isinstance(tree, exp.Neg) and isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        return f"-{tree.this.this}"
    if isinstance(tree, exp.Literal):
        return str(tree.this)
    raise _unknown(tree)


def _unknown(tree: exp.Expression) -> ValueError:
    return ValueError(f"the option \"where\" has '{tree.sql('mysql')}': it takes comparisons (=, <, <=, >, >=, "
                      f"BETWEEN, IN) of a "
                      "column with values, joined by AND; for others read a query (option \"query\")")


def bounds(where: Sequence[Comparison], column: str) -> dict[str, list[str]]:
    """What the column must be at least, and at most (all of these), as texts."""
    of = [c for c in where if c.column.lower() == column.lower() and c.op != "in"]
    return {"least": [c.values[0] for c in of if c.op in ("equal", "greater", "greater_equal")],
            "most": [c.values[0] for c in of if c.op in ("equal", "less", "less_equal")]}


def kept(batch: pa.RecordBatch, where: Sequence[Comparison]) -> pa.RecordBatch:
    """The rows of which all comparisons are true; columns are found by their names."""
    names = [n.lower() for n in batch.schema.names]
    for comparison in where:
        batch = batch.filter(comparison.holds(batch.column(names.index(comparison.column.lower()))))
    return batch
