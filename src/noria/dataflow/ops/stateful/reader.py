"""Reader, the leaf of a view: out = the view's rows by its key, published for lock-free readers (sections 4.1, 6.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError
from noria.core.types import Field
from noria.dataflow.graph.nodes import (
    Columns,
    GraphRuntime,
    KeyPattern,
    MissMode,
    Node,
    ParentPull,
    UpstreamReader,
)
from noria.dataflow.graph.partition import Partition, Parts, by_groups
from noria.dataflow.graph.published import Published, view_of
from noria.dataflow.ops.stateful.stateful import Stateful


class Reader(Stateful):
    """`key`: the columns by which clients look rows up, in parameter order. `visible`: the leading columns that
    clients see.

    `definition`: the number that distinguishes it from other definitions of the view's name. `feed`: no client
    looks it up; its changes are recorded. `adhoc`: it belongs to an ad-hoc view.
    """

    parted = False

    def __init__(self, name: str, fields: tuple[Field, ...], key: Columns, visible: int, definition: int = 0,
                 feed: bool = False, adhoc: bool = False):
        self.name, self._fields, self.key, self.visible, self._definition = name, fields, key, visible, definition
        self._feed, self.adhoc, self.saves = feed, adhoc, not feed

    def describe(self) -> str:
        by = f" by {', '.join(f'#{c}' for c in self.key)}" if self.key else ""
        return f"{'feed' if self._feed else 'reader'} {self.name}{by}"

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return [ParentPull(0, cols)]

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        return by_groups(inputs[0], self.key, {c: c for c in self.key})

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        return [p]

    # -------------------------------------------------------------- state
    def make_state(self, engine: GraphRuntime, node: Node) -> None:
        if node.state is None or node.state.full != node.full:
            fresh = self.fresh(engine, node)  # before the old one is dropped: the space may not suffice
            if node.state is not None:
                view_of(node).drop()
            node.state = fresh

    def fresh(self, engine: GraphRuntime, node: Node) -> Published:
        if self._feed:
            return Published(engine.views.feed(self.name, self._fields))
        return Published(engine.views.create(self.name, self._fields, self.key, self.visible, node.full,
                                             self._definition))

    def begin(self, engine: GraphRuntime, node: Node, rows: int, keys: int) -> None:
        view_of(node).expect(rows, keys)

    def finish(self, engine: GraphRuntime, node: Node) -> None:
        view_of(node).activate()

    def restore(self, engine: GraphRuntime, node: Node, rows: Batch) -> None:
        self.begin(engine, node, len(rows), 0)
        self.tick(engine, node, [rows])
        self.finish(engine, node)

    def presence(self, node: Node) -> list[Columns]:
        return [self.key]

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        return inputs[0]

    def forget(self, engine: GraphRuntime, node: Node) -> None:
        node.clear_ranges()
        if not isinstance(node.state, Published):
            return  # it has no state yet
        view = view_of(node)
        if node.full:
            view.drop()
            node.state = self.fresh(engine, node)
        else:  # uses no memory, which may be exhausted
            view.evict(view.present())

    def fill(self, engine: GraphRuntime, node: Node, cols: Columns, keys: Codes, rows: Batch) -> None:
        view = view_of(node)
        view.begin_tick(engine.tick_number)  # the rows are as of this tick, not as of the view's last change
        try:
            node.stored.fill(cols, keys, rows)
        finally:  # also without space for the rows, or readers of several keys would wait for the tick's end
            view.end_tick(engine.tick_number)

    # -------------------------------------------------------------- ticks
    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        if delta is not None:
            view = view_of(node)
            view.begin_tick(engine.tick_number)
            try:
                view.apply(delta)
            except SqlError:  # no space to publish: a partial view forgets all keys and starts again
                if node.full:
                    raise
                self.forget(engine, node)
            view_of(node).end_tick(engine.tick_number)
        return None

    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        return node.stored.lookup(cols, keys, engine.tick_number)

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        raise AssertionError("nothing stands below a reader")
