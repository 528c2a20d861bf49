"""The option "where": comparisons of columns with values, which each task evaluates for the rows that it reads.

    id BETWEEN 1000 AND 1999 AND score > 2.5 AND day IN ('2026-01-01', '2026-02-01')

Comparisons of the first primary key column also limit the range of keys to read, unless it is a text.  Texts compare
by their column's collation: without case and accents, or by bytes for utf8mb4_bin.

Keeps true: a row is returned if every comparison is true for it (a comparison with NULL is not true).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from noria.core.symbols import fold
from noria.spark.source.errors import OptionError

_OPS: dict[type[exp.Expression], str] = {exp.EQ: "equal", exp.LT: "less", exp.LTE: "less_equal", exp.GT: "greater",
                                         exp.GTE: "greater_equal"}
_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


@dataclass(frozen=True)
class Comparison:
    """A comparison of a column.  `op`: a function of pyarrow.compute, or "in".  `values`: as texts; several for "in".
    `quoted`: they were in quotes in the option.  `sql`: the column's SQL type, once known."""

    column: str
    op: str
    values: tuple[str, ...]
    quoted: bool = False
    sql: str = ""

    def holds(self, column: pa.Array) -> pa.Array:
        if is_text(self.sql):
            return self._holds_of_texts(column.cast(pa.string()))
        if self.op == "in":
            return pc.is_in(column, pa.array([self._value(v, column.type) for v in self.values], column.type))
        return getattr(pc, self.op)(column, pa.scalar(self._value(self.values[0], column.type), column.type))

    def _holds_of_texts(self, column: pa.Array) -> pa.Array:
        kind = self.sql.split("(")[0]
        if kind == "json" or (kind in ("enum", "set") and self.op not in ("in", "equal")):
            how = "not at all" if kind == "json" else "by = and IN only"
            raise OptionError(f"the option \"where\" compares '{self.column}', which is {kind.upper()}, {how}: read a "
                              "query (option \"query\")")
        if not self.quoted:
            raise OptionError(f"the option \"where\" compares the text '{self.column}' with {self.values[0]}: put it "
                              "in quotes")
        fold_them = not self.sql.endswith("utf8mb4_bin")
        mine, theirs = (folded(column), [fold(v) for v in self.values]) if fold_them else (column, list(self.values))
        if self.op == "in":
            return pc.is_in(mine, pa.array(theirs, pa.string()))
        return getattr(pc, self.op)(mine, theirs[0])

    def _value(self, text: str, kind: pa.DataType) -> Any:
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
                or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            raise OptionError(f"the option \"where\" compares numbers, texts, dates and times, and '{self.column}' is "
                              "none: read a query (option \"query\")")
        try:
            return pa.scalar(text).cast(kind).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise OptionError(f"the option \"where\" compares '{self.column}' with {text}, which is no value of it: "
                              f"{e}") from None


def parsed(text: str) -> tuple[Comparison, ...]:
    """Parse the option's text.  Raises OptionError."""
    if not text.strip():
        return ()
    try:
        tree = sqlglot.parse_one(f"SELECT 1 FROM t WHERE {text}", read="mysql").args["where"].this
    except (sqlglot.errors.SqlglotError, AttributeError, KeyError) as e:
        raise OptionError(f"the option \"where\" is no condition: {e}") from None
    parts = tree.flatten() if isinstance(tree, exp.And) else [tree]
    return tuple(c for part in parts for c in _comparisons(part.unnest()))


def _comparisons(tree: Any) -> list[Comparison]:
    left, right = tree.this, tree.args.get("expression")
    if type(tree) in _OPS and isinstance(left, exp.Expression) and isinstance(right, exp.Expression):
        op = _OPS[type(tree)]
        if isinstance(left, exp.Column):
            return [_comparison(left.name, op, right)]
        if isinstance(right, exp.Column):
            return [_comparison(right.name, _TURNED.get(op, op), left)]
    if isinstance(tree, exp.Between) and isinstance(left, exp.Column):
        return [_comparison(left.name, "greater_equal", tree.args["low"]),
                _comparison(left.name, "less_equal", tree.args["high"])]
    if isinstance(tree, exp.In) and isinstance(left, exp.Column) and tree.expressions:
        return [_comparison(left.name, "in", *tree.expressions)]
    raise _unknown(tree)


def _comparison(column: str, op: str, *values: exp.Expression) -> Comparison:
    quoted = all(isinstance(v, exp.Literal) and v.is_string for v in values)
    return Comparison(column, op, tuple(map(_literal, values)), quoted)


_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json")


def is_text(sql: str) -> bool:
    """Whether this SQL type is a text type."""
    return sql.split("(")[0].split(" ")[0] in _TEXTS


def typed(where: Sequence[Comparison], types: Mapping[str, str]) -> tuple[Comparison, ...]:
    """Add the columns' types to the comparisons.  types: SQL types by column name."""
    by_lower = {name.lower(): sql for name, sql in types.items()}
    return tuple(replace(c, sql=by_lower.get(c.column.lower(), "")) for c in where)


def folded(texts: pa.Array) -> pa.Array:
    """Remove case and accents from texts."""
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return pc.ascii_lower(texts)
    each = texts.dictionary_encode()
    return pa.array([fold(t) for t in each.dictionary.to_pylist()], pa.string()).take(each.indices)


def _literal(tree: exp.Expression) -> str:
    if isinstance(tree, exp.Neg) and isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        return f"-{tree.this.this}"
    if isinstance(tree, exp.Literal):
        return str(tree.this)
    raise _unknown(tree)


def _unknown(tree: exp.Expression) -> OptionError:
    return OptionError(f"the option \"where\" has '{tree.sql('mysql')}': it takes comparisons (=, <, <=, >, >=, "
                      f"BETWEEN, IN) of a "
                      "column with values, joined by AND; for others read a query (option \"query\")")


def bounds(where: Sequence[Comparison], column: str) -> dict[str, list[str]]:
    """Return the lower and upper bounds of the column as texts; all of them apply."""
    of = [c for c in where if c.column.lower() == column.lower() and c.op != "in" and not is_text(c.sql)]
    return {"least": [c.values[0] for c in of if c.op in ("equal", "greater", "greater_equal")],
            "most": [c.values[0] for c in of if c.op in ("equal", "less", "less_equal")]}


def kept(batch: pa.RecordBatch, where: Sequence[Comparison]) -> pa.RecordBatch:
    """Return the rows for which all comparisons are true.  Columns are matched by name."""
    names = [n.lower() for n in batch.schema.names]
    for comparison in where:
        batch = batch.filter(comparison.holds(batch.column(names.index(comparison.column.lower()))))
    return batch
