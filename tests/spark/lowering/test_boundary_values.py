"""Every function with boundary values of its arguments: Spark gives what the kernels give, and no job fails.  The calls
are those of `tests/dataflow/engine/test_boundary_values.py`; `make boundaries` runs more."""

from __future__ import annotations

import os
import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from noria.core import values
from noria.core.batch import Batch
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr
from noria.plan.mir import Project
from noria.spark.lowering import coding, expressions, fallback
from noria.state.symbols.symbols import SymbolTable
from reference import boundary_calls
from sql.catalogs import DictCatalog

pytestmark = pytest.mark.spark
CALLS = int(os.environ.get("NORIA_BOUNDARY_CALLS", "1"))  # of each function and number of arguments
SEED = int(os.environ.get("NORIA_BOUNDARY_SEED", "0"))
MOST = int(os.environ.get("NORIA_BOUNDARY_SPARK", "100"))  # calls in all
TOGETHER = 50  # columns of one job
LARGE = ("REPEAT(", "SPACE(", "LPAD(", "RPAD(")  # results may be as large as a packet: too much for the session


def test_spark_gives_what_the_kernels_give(spark: SparkSession) -> None:
    rng = random.Random(SEED)
    catalog = DictCatalog()
    catalog.run(boundary_calls.table())
    rows = boundary_calls.rows(rng, 60)
    texts = [t for t in boundary_calls.calls(rng, CALLS) if not t.startswith(LARGE)]
    rng.shuffle(texts)
    trees: list[tuple[str, Expr]] = []
    for i, text in enumerate(texts):
        view = boundary_calls.view_of(catalog, f"v{i}", text)
        if view is not None and isinstance(view.plan, Project) and len(trees) < MOST:
            trees.append((text, view.plan.exprs[1]))
    wrong: list[str] = []
    for at in range(0, len(trees), TOGETHER):
        wrong += _differences(spark, catalog, rows, trees[at : at + TOGETHER])
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(trees)}:\n" + "\n".join(wrong)


def _differences(spark: SparkSession, catalog: DictCatalog, rows: list[tuple[object, ...]],
                 trees: list[tuple[str, Expr]]) -> list[str]:
    fields = catalog.tables["b"].fields
    shown = spark.createDataFrame(rows, coding.shown_schema(fields)).coalesce(1)
    coded = shown.select(*(coding.to_code(F.col(f"c{i}"), f.type).alias(f"c{i}") for i, f in enumerate(fields)))
    inputs = [expressions.LoweredValue(F.col(f"c{i}"), f.type) for i, f in enumerate(fields)]
    lowered = [expressions.lower(e, inputs) for _, e in trees]
    arrow = coded.select(*(v.column.alias(f"x{i}") for i, v in enumerate(lowered))).toArrow()
    symbols, found = SymbolTable(None), []
    batch = Batch.from_rows([[values.encode(v, f.type, symbols) for v, f in zip(r, fields, strict=True)] for r in rows],
                            len(fields))
    for i, (text, e) in enumerate(trees):
        here = _readable(evaluate.compile(e)(batch, symbols).tolist(), e, symbols)
        there = _readable(fallback.to_codes(arrow.column(i).combine_chunks(), e.type, symbols).tolist(), e, symbols)
        found += [f"{text} of {rows[r]}: kernels {x!r}, Spark {y!r}" for r, (x, y) in enumerate(
            zip(here, there, strict=True)) if x != y][:1]
    return found


def _readable(codes: list[int], e: Expr, symbols: SymbolTable) -> list[object]:
    """Values, errors told from NULL."""
    return ["<error>" if c == values.ERROR_CODE else values.decode(c, e.type, symbols) for c in codes]
