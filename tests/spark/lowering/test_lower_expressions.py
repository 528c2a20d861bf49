"""Expressions in Spark against the kernels' evaluator: random trees, many as columns of one job."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from noria.core import values
from noria.core.batch import Batch
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr, col, const
from noria.core.expressions.functions import call
from noria.core.types import INT, TEXT, Kind, SqlType
from noria.spark.lowering import coding, expressions, fallback
from noria.state.symbols.symbols import SymbolTable
from spark.expression_cases import FIELDS, random_expression, random_rows

pytestmark = pytest.mark.spark


def _inputs(spark: SparkSession, rows: list[tuple[object, ...]]) -> tuple[object, list[expressions.LoweredValue]]:
    """The rows as one partition of coded columns, in order."""
    import pyspark.sql.functions as F

    shown = spark.createDataFrame(rows, coding.shown_schema(FIELDS)).coalesce(1)
    coded = shown.select(*(coding.to_code(F.col(f"c{i}"), f.type).alias(f"c{i}") for i, f in enumerate(FIELDS)))
    return coded, [expressions.LoweredValue(F.col(f"c{i}"), f.type) for i, f in enumerate(FIELDS)]


def _readable(codes: np.ndarray, t: SqlType, symbols: SymbolTable) -> list[object]:
    """Values, errors told from NULL."""
    return ["<error>" if c == values.ERROR_CODE else values.decode(c, t, symbols) for c in codes.tolist()]


def _differences(arrow: pa.Table, trees: list[Expr], rows: list[tuple[object, ...]]) -> list[str]:
    symbols = SymbolTable()
    codes = np.array([[values.encode(v, f.type, symbols) for v, f in zip(r, FIELDS, strict=True)] for r in rows]).T
    batch, found = Batch.of(codes), []
    for i, e in enumerate(trees):
        expected = _readable(evaluate.compile(e)(batch, symbols), e.type, symbols)
        column = arrow.column(i).combine_chunks()
        got = _readable(fallback.to_codes(column, e.type, symbols), e.type, symbols)
        for row, x, y in zip(rows, expected, got, strict=True):
            if x != y:
                found.append(f"{e} : {e.type} of {row}: kernels {x!r}, Spark {y!r}")
                break
    return found


def test_quotients_keep_their_digits(spark: SparkSession) -> None:
    numbers = [col(i, f.type) for i, f in enumerate(FIELDS) if f.type.kind in (Kind.INT, Kind.DECIMAL)]
    trees: list[Expr] = []
    for x in numbers:
        third = call("div", x, const(3, INT))
        trees += [third, call("mul", third, const(100, INT)), call("div", third, const(7, INT)), call("eq", third, x),
                  call("round", third, const(6, INT)), call("if", call("gt", third, const(1, INT)), third, x)]
    third = call("div", const(1, INT), const(3, INT))
    trees += [third, call("mul", third, const(100, INT)), call("add", call("mul", third, const(3, INT)), numbers[0])]
    rows = random_rows(random.Random(9), 60)
    coded, inputs = _inputs(spark, rows)
    arrow = coded.select(*(expressions.lower(e, inputs).column.alias(f"e{i}") for i, e in enumerate(trees))).toArrow()
    assert _differences(arrow, trees, rows) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_expressions_agree(spark: SparkSession, seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    rows = random_rows(rng, 120)
    trees = [random_expression(rng, rng.choice([1, 1, 2, 3])) for _ in range(60)]
    coded, inputs = _inputs(spark, rows)
    lowered = [expressions.lower(e, inputs) for e in trees]
    for e, v in zip(trees, lowered, strict=True):
        assert v.type == e.type
    arrow = coded.select(*(v.column.alias(f"x{i}") for i, v in enumerate(lowered))).toArrow()
    found = _differences(arrow, trees, rows)
    assert not found, f"{len(found)} of {len(trees)} differ:\n" + "\n".join(found)


def test_lists_of_thousands(spark: SparkSession) -> None:
    """Of numbers, texts and conditions: Spark's own operators would be one in the other, or take a second for each."""
    rng = random.Random(5)
    rows = random_rows(rng, 60)
    number, text = (next(i for i, f in enumerate(FIELDS) if f.type.kind is kind) for kind in (Kind.INT, Kind.TEXT))
    a, s = (col(i, FIELDS[i].type) for i in (number, text))
    texts = [const(r[text] or "", TEXT) for r in rows[::2]] + [const(f"no {i}", TEXT) for i in range(5_000)]
    trees = [call("in", a, *(const(i, INT) for i in range(-2_500, 2_500))), call("in", s, *texts),
             call("or", *(call("and", call("eq", a, const(i, INT)), call("ne", s, texts[0])) for i in range(1_000)))]
    coded, inputs = _inputs(spark, rows)
    lowered = [expressions.lower(e, inputs) for e in trees]
    arrow = coded.select(*(v.column.alias(f"x{i}") for i, v in enumerate(lowered))).toArrow()
    assert not _differences(arrow, trees, rows)


def test_coding_and_showing_are_inverse(spark: SparkSession) -> None:
    """Every type: shown, coded, shown again."""
    import pyspark.sql.functions as F

    rows = random_rows(random.Random(4), 40)
    frame = spark.createDataFrame(rows, coding.shown_schema(FIELDS)).coalesce(1)
    coded = [coding.to_code(F.col(f"c{i}"), f.type) for i, f in enumerate(FIELDS)]
    shown = frame.select(*(coding.to_shown(c, f.type).alias(f"c{i}")
                           for i, (c, f) in enumerate(zip(coded, FIELDS, strict=True))))
    found = [tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in shown.collect()]
    assert found == rows
