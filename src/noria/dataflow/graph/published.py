"""The state of a reader: a view in shared memory, with one index by the view's key.

`Published` adapts the view to the protocol `State`; `view_of` returns the view itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.dataflow.graph.nodes import Columns, Node
from noria.dataflow.graph.protocols import ViewState
from noria.state.rows.table import Cold


class Published:
    """Implements `protocols.State`. The argument `cols` is always the view's key."""

    def __init__(self, view: ViewState):
        self.view = view

    @property
    def full(self) -> bool:
        return self.view.full

    def fits(self, indexes: Sequence[Columns]) -> bool:
        return True

    def fit(self, indexes: Sequence[Columns]) -> None:
        """Nothing to do: the only index is the one that readers use."""

    def fill(self, cols: Columns, keys: Codes, rows: Batch) -> None:
        self.view.fill(keys, rows)

    def missing(self, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
        return self.view.missing(keys)

    def evict(self, cols: Columns, keys: Codes) -> int:
        return self.view.evict(keys)

    def present(self, cols: Columns) -> Codes:
        return self.view.present()

    def present_count(self, cols: Columns) -> int:
        return self.view.present_count()

    def coldest(self, cols: Columns, most: int) -> Cold:
        return Cold(*self.view.coldest(most))

    def lookup(self, cols: Columns, keys: Codes, tick: int) -> tuple[Batch, Codes]:
        return self.view.rows(keys)

    def rows(self) -> Batch:
        return self.view.rows(self.view.present())[0]

    def part(self, parts: int, low: int, high: int) -> Batch:
        raise AssertionError("nothing is built from a reader")

    def part_of(self, rows: Batch, parts: int) -> Codes:
        raise AssertionError("nothing is built from a reader")

    def held(self, texts: Sequence[int]) -> Iterator[Codes]:
        return self.view.held()

    def shrink(self) -> None:
        """Nothing to do: views reuse their space themselves."""

    def memory(self) -> int:
        return self.view.memory()

    def __len__(self) -> int:
        return len(self.view)


def view_of(reader: Node) -> ViewState:
    assert isinstance(reader.state, Published)
    return reader.state.view
