"""Reader: the leaf of an external view; its state is published for lock-free readers (sections 4.1, 6.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError
from noria.core.types import Field
from noria.dataflow.engine import Engine
from noria.dataflow.graph import Columns, Mode, Need, Node, Operator, Pattern
from noria.dataflow.protocols import ViewState


class Reader(Operator):
    """key: the columns it is looked up by, in parameter order; visible: leading columns a client sees; definition: what
    tells it from other views of its name."""

    stateful = True

    def __init__(self, name: str, fields: tuple[Field, ...], key: Columns, visible: int, definition: int = 0):
        self.name, self._fields, self.key, self.visible, self._definition = name, fields, key, visible, definition

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def describe(self) -> str:
        by = f" by {', '.join(f'#{c}' for c in self.key)}" if self.key else ""
        return f"reader {self.name}{by}"

    def needs(self, node: Node, cols: Columns) -> list[Need]:
        return [Need(0, cols)]

    def carry(self, engine: Engine, node: Node, port: int, primary: int | None, p: Pattern) -> list[Pattern]:
        return [p]

    # -------------------------------------------------------------- state
    def make_state(self, engine: Engine, node: Node) -> None:
        if node.state is None or node.state.full != node.full:
            fresh = self._fresh(engine, node)  # before the other is dropped: there may be no room
            if node.state is not None:
                node.state.drop()
            node.state = fresh

    def _fresh(self, engine: Engine, node: Node) -> ViewState:
        return engine.views.create(self.name, self._fields, self.key, self.visible, node.full, self._definition)

    def build(self, engine: Engine, node: Node, rows: Iterator[Batch]) -> None:
        super().build(engine, node, rows)
        _state(node).activate()

    def presence(self, node: Node) -> list[Columns]:
        return [self.key]

    def everything(self, engine: Engine, node: Node) -> Batch:
        return _state(node).rows(_state(node).present())[0]

    def recompute(self, engine: Engine, node: Node, inputs: Sequence[Batch]) -> Batch:
        return inputs[0]

    def fill(self, engine: Engine, node: Node, cols: Columns, keys: Codes, rows: Batch) -> None:
        node.state.fill(keys, rows)

    def missing(self, node: Node, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
        return _state(node).missing(keys)

    def drop_keys(self, node: Node, cols: Columns, keys: Codes) -> None:
        _state(node).evict(keys)

    def present(self, node: Node, cols: Columns) -> Codes:
        return _state(node).present()

    def coldest(self, node: Node, cols: Columns, most: int) -> tuple[Codes, Codes, Codes]:
        return _state(node).coldest(most)

    def forget(self, engine: Engine, node: Node) -> None:
        node.clear_ranges()
        if node.full:
            _state(node).drop()
            node.state = self._fresh(engine, node)
        else:  # takes no memory, which may be what there is none of
            _state(node).evict(_state(node).present())

    def held(self, node: Node) -> Iterator[Codes]:
        return _state(node).held()

    def shrink(self, node: Node) -> None:
        """Views recycle their space themselves."""

    # -------------------------------------------------------------- ticks
    def tick(self, engine: Engine, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        if delta is not None:
            _state(node).begin_tick(engine.tick_number)
            try:
                _state(node).apply(delta)
            except SqlError:  # no room to publish: a partial view forgets everything and starts small again
                if node.full:
                    raise
                self.forget(engine, node)
            _state(node).end_tick(engine.tick_number)
        return None

    def fetch(self, engine: Engine, node: Node, cols: Columns, keys: Codes, mode: Mode) -> tuple[Batch, Codes]:
        return _state(node).rows(keys)

    def stream(self, engine: Engine, node: Node) -> Iterator[Batch]:
        raise AssertionError("nothing stands below a reader")


def _state(node: Node) -> ViewState:
    state: ViewState = node.state
    return state
