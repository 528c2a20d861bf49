"""The recipes of ARCHITECTURE.md ("Where to add what") are true: a function and an operator added in just the places
that they name are there, in a view that is kept, on both lowerings."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyspark.sql.functions as F
import pytest
from pyspark.sql import SparkSession

import noria
from dataflow.engine_rig import Rig
from noria.core.batch import Batch, Codes
from noria.core.expressions.library import LIBRARY, ArgumentType, Function
from noria.core.expressions.library.declare import text_of
from noria.core.types import INT, Column, Field, TableDef
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.nodes import Columns, KeyPattern, Node, ParentPull
from noria.dataflow.inspect.validate import validate
from noria.dataflow.ops.stateless.stateless import Stateless
from noria.lowering.operators import OPERATORS
from noria.plan.mir import Base, Mir
from noria.plan.view import ViewDef
from noria.spark.lowering import lower
from noria.spark.lowering.relation import Relation

TABLE = TableDef("t", (Column("id", INT, False), Column("g", INT)), (0,), table_id=1)


def test_a_scalar_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIBRARY, "shout", Function((ArgumentType.TEXT,), text_of, values=lambda text: text + "!"))
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20))")
        db.sql("CREATE VIEW loud AS SELECT id, SHOUT(s) AS said FROM t WHERE id = ?")
        db.sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
        assert db.view("loud").lookup(1) == [(1, "a!")] and db.view("loud").lookup(2) == [(2, None)]
        db.sql("UPDATE t SET s = 'b'")
        assert db.view("loud").lookup(1) == [(1, "b!")]
        assert db.sql("SELECT id FROM t WHERE SHOUT(s) = 'b!' AND id = 2").rows == [(2,)]


@dataclass(frozen=True)
class Twice(Mir):
    """Each row twice."""

    input: Mir

    def __str__(self) -> str:
        return "twice"


class TwiceOperator(Stateless):
    """out = 2 · in.  Linear: a delta's rows count twice."""

    def __init__(self, fields: tuple[Field, ...]):
        self._fields = fields

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def describe(self) -> str:
        return "twice"

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return [ParentPull(0, cols)]

    def map(self, engine: Engine, rows: Batch) -> tuple[Batch, Codes | None]:
        return Batch(rows.columns, 2 * rows.weights), None

    def carry(self, engine: Engine, node: Node, port: int, primary: int | None, p: KeyPattern) -> list[KeyPattern]:
        return [p]


def _twice(node: Twice, go: Any, tables: Any) -> Relation:
    source = go(node.input)
    both = source.rows.withColumn("again", F.explode(F.array(F.lit(1), F.lit(2)))).drop("again")
    return Relation(both, source.fields, source.failing)


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATORS, Twice, lambda m: TwiceOperator(m.fields))
    monkeypatch.setitem(lower.LOWERINGS, Twice, _twice)


@pytest.mark.usefixtures("twice")
def test_an_operator_is_maintained() -> None:
    rng, r = random.Random(3), Rig([TABLE], [ViewDef("v", Twice(Base(TABLE)), (1,), 2)])
    for step in range(40):
        r.random_write(rng)
        key = rng.randrange(3)
        rows, _ = r.engine.read("v", np.array([[key]]))
        have = sorted(tuple(row) for row, w in zip(rows.rows(), rows.weights.tolist(), strict=True) for _ in range(w))
        assert have == sorted(2 * [row for row in r.rows["t"] if row[1] == key]), step
        validate(r.engine)


@pytest.mark.spark
@pytest.mark.usefixtures("twice")
def test_an_operator_is_recomputed_by_spark(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 5), (2, None)], "id int, g int")
    answer = lower.shown(lower.coded(Twice(Base(TABLE)), {"t": rows})).collect()
    assert sorted((tuple(r) for r in answer), key=str) == [(1, 5), (1, 5), (2, None), (2, None)]
