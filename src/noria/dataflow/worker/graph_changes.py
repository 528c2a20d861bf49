"""Applies changes of the program to one worker's graph: all steps of a change or none (section 5).

Keeps true: a change that fails leaves the graph as it was. If a view of the program cannot be made at recovery,
it is left out, and its reads return the reason.

Call `GraphChanges.change`; at recovery `each` or `adopt`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from noria.core.batch import Batch
from noria.core.errors import InvariantViolation, SqlError, view_changed, view_gone
from noria.core.errors.codes import DROP_INDEX_FK, NOT_SUPPORTED_YET, UNKNOWN_ERROR
from noria.core.limits import IDLE_INDEXES
from noria.core.types import TableDef
from noria.dataflow.cluster.remote_scan import RemoteOneShot, RemoteTableReads
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.graph.nodes import Columns, Node
from noria.dataflow.graph.protocols import BaseStore
from noria.dataflow.inspect.rehearsal import rehearse
from noria.dataflow.messages import packets
from noria.dataflow.messages.rehearsal import Rehearsal
from noria.dataflow.oneshot.oneshot import OneShot, first_rows
from noria.dataflow.worker import saving
from noria.dataflow.worker.commits import TickFailed
from noria.plan.graph_plan import GraphPlan
from noria.plan.mir import Mir
from noria.plan.view import ViewDef


class GraphPlanner(Protocol):
    """Makes and removes the graph nodes of views (`lowering.lower.Lowering`)."""

    def add_view(self, view: ViewDef) -> None: ...

    def try_view(self, view: ViewDef) -> None:
        """Make the nodes of a view that `remove_trial_view` removes again."""

    def remove_trial_view(self, name: str) -> None: ...

    def drop_view(self, name: str) -> None: ...

    def rename_view(self, view: str, name: str) -> None: ...

    def drop_table(self, name: str) -> None: ...

    def rename_table(self, table: str, name: str) -> None: ...

    def rekey_table(self, table: TableDef) -> None:
        """Use the table's new primary key."""

    def renamed(self, view: ViewDef, table: str, name: str) -> ViewDef:
        """The view after a table was renamed."""

    def outdated(self, view: ViewDef, tables: Mapping[str, TableDef]) -> SqlError | None:
        """Why the view cannot be made: a table that it reads has changed since it was planned."""

    def input_plan(self, node: Node) -> Mir:
        """The plan whose rows are a node's input."""

    def tables(self, view: ViewDef) -> Iterable[str]:
        """The base tables that a view reads."""

    def top(self, view: str) -> Node | None:
        """The node of a view's rows, or None."""

    def is_idle(self, view: str) -> bool:
        """Whether the view was never read."""

    def names(self) -> Iterable[str]:
        """The views in the graph."""

    def replan(self) -> None:
        """Make the nodes of the views that were added. Views without stored rows may be planned anew with them."""

    def graph_plan(self) -> GraphPlan:
        """The graph as data."""

    def adopt(self, plan: GraphPlan) -> None:
        """Make the same graph in an engine that has none."""

    def back_to(self, plan: GraphPlan) -> set[Node]:
        """Restore the graph of a moment before a change whose steps were undone. Returns the nodes that had to be
        made again."""

    def one_shot(self, view: ViewDef) -> tuple[ViewDef, Node, dict[Node, Node], dict[Node, set[int]]]:
        """Make nodes, outside the graph, for one read of a view. Returns the view, the node of its rows, equal
        nodes of the graph, and the columns of base tables that it uses."""


class GraphChanges:
    """The views in the graph. `views`: by name. `left_out`: views that could not be made, and why."""

    def __init__(self, engine: Engine, store: BaseStore, planner: GraphPlanner, environment: WorkerEnvironment,
                 large: int | None):
        self._engine, self._store, self._planner, self._large = engine, store, planner, large
        self._environment = environment
        self.views: dict[str, Any] = {}
        self.left_out: dict[str, SqlError] = {}
        engine.first_rows = partial(first_rows, engine)
        self._before: Any = None  # the graph before the last change, of one worker among several

    def change(self, steps: Sequence[packets.MigrationStep], commit: Callable[[], object] = lambda: None,
               back: bool = False) -> SqlError | None:
        """Make all of these changes, or return the error why none was made.

        `commit`: makes them durable; if it raises, they are undone. `back`: the steps undo the last change.
        """
        if back and self._before is None and not self._is_back(steps):
            return SqlError(*UNKNOWN_ERROR, "a change of an earlier life of this worker cannot be undone")
        for s in steps:
            if isinstance(s, packets.RenameView) and s.view not in self.views:
                return view_gone(s.view)
        undo: list[Callable[[], None]] = []
        left_out = dict(self.left_out)
        indexed = {(base, columns) for table, bases in self._engine.bases.items() for base in bases
                   for columns in base.pulled if columns and self._store.finds(table, columns)}
        dropped = [self.views[s.view] for s in steps if isinstance(s, packets.DropView) and s.view in self.views]
        several = self._engine.exchanges is not None
        before, again = self._planner.graph_plan() if several else None, set[Node]()
        try:
            for s in steps:
                undo.append(self._apply(s))
            if back and self._before is not None:
                again = self._planner.back_to(self._before)
            self._planner.replan()
            self._engine.relayout(self._large)
            self._engine.builds.declare()
            self._refuse_lost_lookups(steps, indexed)
            self._commit(steps, commit)
        except InvariantViolation:
            raise
        except Exception as bug:
            self._engine.limits = None  # the undo has no time limit
            for u in reversed(undo):
                u()
            self.left_out = left_out
            again = again | self._planner.back_to(before) if before is not None else again
            self._planner.replan()
            self._engine.relayout(self._large)
            self._engine.builds.declare()
            self._recreated(again)
            if isinstance(bug, SqlError):
                return bug
            if isinstance(bug, ValueError):
                return SqlError(*NOT_SUPPORTED_YET, str(bug))
            raise
        self._before = None if back else before
        self._recreated(again)
        left = {t for d in dropped for t in self._planner.tables(d)}
        left |= {s.table.name for s in steps if isinstance(s, packets.AlterTable)}
        for table in left and left & self._store.tables().keys():
            needed = {c for base in self._engine.bases.get(table, ()) for c in base.pulled if c}
            with suppress(SqlError):  # a full disk or a damaged file: retried at a later change
                self._store.trim_indexes(table, needed, IDLE_INDEXES)
        return None

    def _is_back(self, steps: Sequence[packets.MigrationStep]) -> bool:
        """Whether the views already are as these steps make them, as in a graph that was adopted from another
        worker."""
        return all(s.view.name in self.views if isinstance(s, packets.AddView) else s.view not in self.views
                   for s in steps if isinstance(s, packets.AddView | packets.DropView | packets.RenameView))

    def _recreated(self, nodes: set[Node]) -> None:
        """After a graph was restored: these nodes are empty, so other workers' rows of them are gathered again."""
        exchanges = self._engine.exchanges
        if exchanges is not None and nodes:
            exchanges.recreated({n for n in nodes if n in self._engine.graph.nodes})

    def _commit(self, steps: Sequence[packets.MigrationStep], commit: Callable[[], object]) -> None:
        dropped = [s.table for s in steps if isinstance(s, packets.DropTable)]
        for name in dropped:
            self._store.drop_table(name)
        try:
            commit()
        except Exception:
            for name in reversed(dropped):
                self._store.keep_table(name)
            raise

    def rehearse(self, steps: Sequence[packets.MigrationStep]) -> Rehearsal:
        """Describe what these steps would do; nothing is changed."""
        views = [s.view for s in steps if isinstance(s, packets.AddView)]
        return rehearse(self._engine, self._planner, views, [s.view for s in steps if isinstance(s, packets.DropView)])

    def each(self, steps: Sequence[packets.MigrationStep]) -> list[tuple[str, SqlError]]:
        """Make all of these steps, or if that fails one by one. Returns the views that cannot be made."""
        all_made = self._noted_change(steps) is None
        if all_made:
            self._catch_up()
            return []
        self._engine.saved = None
        errors = [(s, self._noted_change((s,))) for s in steps]
        failed = {s.view.name: e for s, e in errors if e is not None and isinstance(s, packets.AddView)}
        self.left_out.update(failed)
        return list(failed.items())

    def _catch_up(self) -> None:
        try:
            if self._engine.saved is not None:
                saving.catch_up(self._engine, self._engine.saved)
        except Exception as bug:  # states may differ from the tables
            raise TickFailed(f"the tick of what was written since states were saved failed: {bug!r}") from bug

    def adopt(self, steps: Sequence[packets.MigrationStep], plan: GraphPlan) -> None:
        """Make the views of these steps from the other workers' graph. SqlError, without any change, if the plan
        does not match or a graph exists already."""
        self._planner.adopt(plan)
        self._before = None  # earlier changes of tables were made without a graph
        self.views = {s.view.name: s.view for s in steps if isinstance(s, packets.AddView)}
        self._planner.replan()
        self._engine.relayout(self._large)
        self._engine.builds.declare()
        self._catch_up()

    def graph_plan(self) -> GraphPlan:
        """The graph as data, which another worker can adopt."""
        return self._planner.graph_plan()

    def _noted_change(self, steps: Sequence[packets.MigrationStep]) -> SqlError | None:
        """`change`, with a defect logged and returned as an error."""
        try:
            return self.change(steps)
        except InvariantViolation:
            raise
        except Exception as bug:
            self._environment.note("".join(traceback.format_exception(bug)))
            return SqlError(*UNKNOWN_ERROR, f"{type(bug).__name__}: {bug}")

    def _apply(self, s: packets.MigrationStep) -> Callable[[], None]:
        """Apply one step. Returns a function that undoes it."""
        if isinstance(s, packets.CreateTable):
            if s.table.name in self._store.tables():
                return lambda: None  # recovery: the store has it
            self._store.create_table(s.table)
            return lambda: self._store.drop_table(s.table.name)
        if isinstance(s, packets.AlterTable):
            return self._alter(s.table)
        if isinstance(s, packets.DropTable):
            self._planner.drop_table(s.table)
            return lambda: None
        if isinstance(s, packets.AddView | packets.CheckView):
            view = s.view
            damages = map(self._store.damage_of, self._planner.tables(view))
            if (damage := next((d for d in damages if d is not None), None)) is not None:
                raise damage
            self._refuse_outdated(view)
            if isinstance(s, packets.CheckView):
                self._planner.one_shot(view)  # makes nodes outside the graph
                return lambda: None
            self._add(view)
            return lambda: self._drop(view.name)
        if isinstance(s, packets.RenameView):
            self._rename(s.view, s.name)
            return lambda: self._rename(s.name, s.view)
        self.left_out.pop(s.view, None)
        if s.why is not None:
            self.left_out[s.view] = s.why
        dropped = self.views.get(s.view)
        if dropped is None or (s.idle and not self._planner.is_idle(s.view)):
            return lambda: None
        self._drop(s.view)
        return lambda: self._add(dropped)

    def is_idle(self, view: str) -> bool:
        """Whether the view was never read, or does not exist (see `GraphPlanner.is_idle`)."""
        return view not in self.views or self._planner.is_idle(view)

    def _alter(self, table: TableDef) -> Callable[[], None]:
        was = next((t for t in self._store.tables().values() if t.table_id == table.table_id), None)
        if was is None:  # its worker ended before it replaced another table
            raise view_changed(table.name)
        try:
            self._refuse_passing(was, table)
            self._store.alter_table(table)
        except SqlError:
            self._store.alter_table(was, fits=True)  # ends the check of writes
            raise
        self._call(was.name, table.name)
        self._planner.rekey_table(table)

        def back() -> None:
            self._store.alter_table(was, fits=True)
            self._call(table.name, was.name)
            self._planner.rekey_table(was)

        return back

    def _refuse_passing(self, was: TableDef, table: TableDef) -> None:
        """Reject a change of the key order that the first states under way need: they read the table in this
        order."""
        bases = set(self._engine.bases.get(was.name, ()))
        if was.keyed != table.keyed and bases & self._engine.builds.sources():
            what = "change the primary key" if table.numbered(was) is None else "number the rows"
            raise SqlError(*NOT_SUPPORTED_YET, f"Cannot {what} of '{was.name}' now: a view of it has "
                                               "no first state yet (SHOW NORIA MIGRATIONS): try again when it has")

    def _refuse_lost_lookups(self, steps: Sequence[packets.MigrationStep], before: Container[tuple[Node, Columns]]
                             ) -> None:
        """Reject steps after which a lookup in use would have no index; another index must exist first. `before`:
        the lookups that had an index."""
        for table in [s.table.name for s in steps if isinstance(s, packets.AlterTable)]:
            for base in self._engine.bases.get(table, ()):
                if any((base, columns) in before and not self._store.finds(table, columns)
                       for columns in base.pulled):
                    raise SqlError(*DROP_INDEX_FK, f"Cannot drop an index of '{table}': views look rows up by "
                                   "it; another one is being built for them (SHOW NORIA MIGRATIONS): try again when it "
                                   "is there")

    def _call(self, table: str, name: str) -> None:
        """Rename the table in the graph and in the views."""
        if table != name:
            self._planner.rename_table(table, name)
            self.views = {v: self._planner.renamed(view, table, name) for v, view in self.views.items()}

    def _add(self, view: Any) -> None:
        self.views[view.name] = view
        self._planner.add_view(view)

    def _rename(self, view: str, name: str) -> None:
        self._planner.rename_view(view, name)
        self.views[name] = replace(self.views.pop(view), name=name)

    def _drop(self, name: str) -> None:
        del self.views[name]
        self._planner.drop_view(name)

    def one_shot(self, view: Any, rows: int, remote: RemoteTableReads | None = None,
                 own: Mapping[str, Batch] | None = None) -> tuple[Any, Node, OneShot]:
        """Prepare one read, of at most `rows` rows, of a view outside the graph: the view and the node of its
        rows. `remote`: receives other workers' rows, if the read needs them. `own`: see `OneShot`."""
        self._refuse_outdated(view)
        view, top, twins, texts = self._planner.one_shot(view)
        if remote is not None:
            return view, top, RemoteOneShot(self._engine, rows, texts, remote, own)
        return view, top, OneShot(self._engine, twins, rows, own, texts)

    def _refuse_outdated(self, view: Any) -> None:
        """Reject a view that was planned for former definitions of tables; the caller plans it again."""
        if (error := self._planner.outdated(view, self._store.tables())) is not None:
            raise error

    def input_plan(self, node: Node) -> Mir:
        """The plan whose rows are a node's input."""
        return self._planner.input_plan(node)
