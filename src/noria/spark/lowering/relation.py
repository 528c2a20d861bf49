"""A lowered plan: a DataFrame with coded columns (`coding.py`), and its columns renamed for joins and groups."""

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
    """A lowered plan: coded columns c0, c1, …  `failing`: the columns that can hold an evaluation error."""

    rows: DataFrame
    fields: tuple[Field, ...]
    failing: frozenset[int] = frozenset()

    def column(self, i: int) -> Column:
        return F.col(f"c{i}")

    def values(self) -> list[expressions.LoweredValue]:
        return [expressions.LoweredValue(self.column(i), f.type, i in self.failing) for i, f in enumerate(self.fields)]


Tables = Mapping[str, DataFrame]
Go = Callable[[Mir], Relation]


def keyed(rows: DataFrame, prefix: str, fields: tuple[Field, ...], keys: tuple[int, ...]) -> DataFrame:
    """Rename the columns to PREFIX0, PREFIX1, …  For each key, add a twin PREFIXk0, … that has what `=` compares."""
    columns = [F.col(f"c{i}").alias(f"{prefix}{i}") for i in range(len(fields))]
    twins = [expressions.equality_key(F.col(f"c{k}"), fields[k].type).alias(f"{prefix}k{j}")
             for j, k in enumerate(keys)]
    return rows.select(*columns, *twins)
