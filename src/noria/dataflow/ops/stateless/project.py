"""Project: out = {(e1(r), ..., en(r)) : r in input}. Linear.

A row that is removed and added in one small delta is left out. So nodes below see no UPDATE of other columns. With
`nets` this holds for deltas of any size: the output then omits columns that often change alone.

Keys trace through bare columns. Together with these they may contain constants: a key with another value has no
rows, and nothing is pulled from the parent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Col, Const, Expr, columns_of
from noria.core.types import Field
from noria.core.values import encode
from noria.dataflow.graph.keys import folded_keys
from noria.dataflow.graph.nodes import (
    Columns,
    GraphRuntime,
    KeyPattern,
    MissMode,
    Node,
    ParentPull,
    Untraceable,
    UpstreamReader,
)
from noria.dataflow.graph.partition import Partition, Parts, placed
from noria.dataflow.ops.stateless.stateless import Stateless
from noria.state.rows.netting import netted

NETTED_ROWS = 256  # a delta of so many rows is always netted, which takes a few microseconds


class Project(Stateless):
    def __init__(self, fields: tuple[Field, ...], exprs: tuple[Expr, ...], nets: bool = False):
        self._fields, self._exprs, self._nets = fields, exprs, nets
        self._copies = {i: e.index for i, e in enumerate(exprs) if isinstance(e, Col)}
        self._constants = {i: e for i, e in enumerate(exprs) if isinstance(e, Const)}
        self._only_copies = list(self._copies.values()) if len(self._copies) == len(exprs) else None
        self._compiled = [] if self._only_copies is not None else [evaluate.compile(e) for e in exprs]
        self._used_inputs = frozenset(c for e in exprs for c in columns_of(e))

    def describe(self) -> str:
        return "project " + ", ".join(map(str, self._exprs))

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        copies = [self._copies[c] for c in cols if c in self._copies]
        computed = [c for c in cols if c not in self._copies and (c not in self._constants or not copies)]
        if computed:
            names = ", ".join(self._fields[c].name for c in computed)
            raise Untraceable(node, f"{names} is computed, so no index above can answer it")
        return [ParentPull(0, tuple(copies))]

    def used_inputs(self, node: Node) -> frozenset[int]:
        return self._used_inputs

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        return Partition((None,), placed(inputs[0], {c: i for i, c in reversed(self._copies.items())}))

    def map(self, engine: UpstreamReader, rows: Batch) -> tuple[Batch, Codes | None]:
        if self._only_copies is not None:
            return Batch(rows.columns[self._only_copies], rows.weights), None
        out = np.empty((len(self._compiled), len(rows)), np.int64)
        for i, f in enumerate(self._compiled):
            out[i] = f(rows, engine.symbols)
        return Batch(out, rows.weights), None

    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        out = super().tick(engine, node, deltas)
        if out is None or len(out) < 2:
            return out
        few = len(out) <= NETTED_ROWS and bool(out.weights.min() < 0 < out.weights.max())
        return netted(out) if self._nets or few else out

    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        (need,) = self.needs(node, cols)
        if len(need.cols) == len(cols):
            return super().fetch(engine, node, cols, keys, mode)
        at = np.flatnonzero(self._possible(engine, cols, keys))
        copied = [i for i, c in enumerate(cols) if c in self._copies]
        rows, ordinal = engine.fetch(node.parents[0], need.cols, np.ascontiguousarray(keys[copied][:, at]), mode)
        return self.map(engine, rows)[0], at[ordinal]

    def _possible(self, engine: UpstreamReader, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
        """The keys whose values for constant columns equal the constants."""
        ok = np.ones(keys.shape[1], np.bool_)
        for i, c in enumerate(cols):
            if c in self._constants:
                both = np.stack([keys[i], self._constant(engine, c, keys.shape[1])])
                have, constant = folded_keys(engine.symbols, [self._fields[c].type.folds] * 2, both)
                ok &= have == constant
        return ok

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        known = {i: p.values[p.cols.index(c)] for i, c in self._copies.items() if c in p.cols}
        if known:
            known |= {i: self._constant(engine, i, p.values.shape[1]) for i in self._constants}
        values = np.array(list(known.values()), np.int64).reshape(len(known), p.values.shape[1])
        return [KeyPattern(tuple(known), values, p.source)]

    def _constant(self, engine: UpstreamReader, column: int, n: int) -> Codes:
        code = encode(self._constants[column].value, self._fields[column].type, engine.symbols)
        return np.full(n, code, np.int64)
