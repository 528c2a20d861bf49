"""A lowered plan: a DataFrame in coded columns (`coding.py`), and what its lowerings share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from noria.core.types import Field
from noria.plan.mir import Mir
from noria.spark.lowering import expressions


@dataclass(frozen=True)
class Relation:
    """A lowered plan: coded columns c0…; `failing` are the columns that can hold an evaluation error."""

    rows: DataFrame
    fields: tuple[Field, ...]
    failing: frozenset[int] = frozenset()

    def column(self, i: int) -> Column:
        return F.col(f"c{i}")

    def values(self) -> list[expressions.Value]:
        return [expressions.Value(self.column(i), f.type, i in self.failing) for i, f in enumerate(self.fields)]


Tables = Mapping[str, DataFrame]
Go = Callable[[Mir], Relation]


def keyed(rows: DataFrame, prefix: str, fields: tuple[Field, ...], keys: tuple[int, ...]) -> DataFrame:
    """Columns renamed to PREFIX0…, and for each key column its equality twin PREFIXk0…: what `=` compares."""
    columns = [F.col(f"c{i}").alias(f"{prefix}{i}") for i in range(len(fields))]
    twins = [expressions.equality_key(F.col(f"c{k}"), fields[k].type).alias(f"{prefix}k{j}")
             for j, k in enumerate(keys)]
    return rows.select(*columns, *twins)
