"""Project: out = {(e1(r), ..., en(r)) : r in input}.  Linear.  Keys trace through bare columns only."""

from __future__ import annotations

import numpy as np

from noria.core import evaluate
from noria.core.batch import Batch, Codes
from noria.core.expr import Col, Expr
from noria.core.types import Field
from noria.dataflow.engine import Engine
from noria.dataflow.graph import Columns, Need, Node, Pattern, Untraceable
from noria.dataflow.ops.stateless import Stateless


class Project(Stateless):
    def __init__(self, fields: tuple[Field, ...], exprs: tuple[Expr, ...]):
        self._fields, self._exprs = fields, exprs
        self._copies = {i: e.index for i, e in enumerate(exprs) if isinstance(e, Col)}
        self._only_copies = list(self._copies.values()) if len(self._copies) == len(exprs) else None
        self._compiled = [evaluate.compile(e) for e in exprs]

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def describe(self) -> str:
        return "project " + ", ".join(map(str, self._exprs))

    def needs(self, node: Node, cols: Columns) -> list[Need]:
        computed = [c for c in cols if c not in self._copies]
        if computed:
            names = ", ".join(self._fields[c].name for c in computed)
            raise Untraceable(node, f"{names} is computed, so no index above can answer it")
        return [Need(0, tuple(self._copies[c] for c in cols))]

    def map(self, engine: Engine, rows: Batch) -> tuple[Batch, Codes | None]:
        if self._only_copies is not None:
            return Batch(rows.columns[self._only_copies], rows.weights), None
        out = np.empty((len(self._compiled), len(rows)), np.int64)
        for i, f in enumerate(self._compiled):
            out[i] = f(rows, engine.symbols)
        return Batch(out, rows.weights), None

    def carry(self, engine: Engine, node: Node, port: int, primary: int | None, p: Pattern) -> list[Pattern]:
        known = [(i, p.cols.index(c)) for i, c in self._copies.items() if c in p.cols]
        return [Pattern(tuple(i for i, _ in known), p.values[[j for _, j in known]], p.source)]
