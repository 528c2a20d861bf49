"""Keep: out = input, stored.  It stands where something above must find rows by columns that do not trace to a
state (a computed join key, the right of a left join): a materialized node of the paper's section 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noria.core.batch import Batch, Codes
from noria.core.types import Field
from noria.dataflow.engine import Engine
from noria.dataflow.graph import Columns, Mode, Need, Node, Operator, Pattern, under_each
from noria.state.table import Table


class Keep(Operator):
    stateful = True

    def __init__(self, fields: tuple[Field, ...]):
        self._fields = fields

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def describe(self) -> str:
        return "keep"

    def needs(self, node: Node, cols: Columns) -> list[Need]:
        return [Need(0, cols)]

    def carry(self, engine: Engine, node: Node, port: int, primary: int | None, p: Pattern) -> list[Pattern]:
        return [p]

    def make_state(self, engine: Engine, node: Node) -> None:
        if node.state is None or node.state.full != node.full:
            node.state = Table(node.width, node.folds(), engine.symbols, full=node.full, name=repr(node))
        for cols in node.indexes:
            node.state.add_index(cols)
        for cols in [c for c in node.state.indexes if c not in node.indexes]:
            node.state.drop_index(cols)

    def recompute(self, engine: Engine, node: Node, inputs: Sequence[Batch]) -> Batch:
        return inputs[0]

    def fill(self, engine: Engine, node: Node, cols: Columns, keys: Codes, rows: Batch) -> None:
        node.state.fill(cols, keys, rows)

    def tick(self, engine: Engine, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        return None if delta is None else node.state.apply(delta)

    def fetch(self, engine: Engine, node: Node, cols: Columns, keys: Codes, mode: Mode) -> tuple[Batch, Codes]:
        if not cols:
            return under_each(node.state.rows(), keys.shape[1], engine.work)
        out: tuple[Batch, Codes] = node.state.lookup(cols, keys, engine.tick_number)
        return out

    def stream(self, engine: Engine, node: Node) -> Iterator[Batch]:
        yield node.state.rows()
