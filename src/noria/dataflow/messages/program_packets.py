"""Packets that change the program of tables and views, or predict such a change.

The front end sends them to a worker, as those of `packets.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.plan.graph_plan import GraphPlan
from noria.plan.mir import Mir
from noria.plan.view import ViewDef


@dataclass(frozen=True)
class CreateTable:
    table: TableDef


@dataclass(frozen=True)
class AlterTable:
    """Replace the definition and name of the table of this id. Its rows are unchanged; if types change, a
    `CheckRowsFit` has confirmed that the rows fit."""

    table: TableDef


@dataclass(frozen=True)
class DropTable:
    table: str


@dataclass(frozen=True)
class AddView:
    view: ViewDef


@dataclass(frozen=True)
class CheckView:
    """Report whether the view can be made, without making it: it has no reader yet."""

    view: ViewDef


@dataclass(frozen=True)
class DropView:
    """Drop a view. `why`: the error for its reads from now on, if the view is in the program and could not be
    made. `idle`: drop it only if it was never read."""

    view: str
    why: SqlError | None = None
    idle: bool = False


@dataclass(frozen=True)
class RenameView:
    view: str
    name: str


@dataclass(frozen=True)
class ChangeOrigin:
    """The recorded origin of a change of the program. `at`: microseconds since 1970, UTC. `who`: user@host, or
    the part of the server that requested the change. `text`: the statement."""

    at: int
    who: str
    text: str


@dataclass(frozen=True)
class RecordedChange:
    """A recorded change, with the version of the program that it produced."""

    version: int
    note: ChangeOrigin


MigrationStep = CreateTable | AlterTable | DropTable | AddView | CheckView | DropView | RenameView


@dataclass(frozen=True)
class Migrate:
    """A change of the program. Answer: `Migrated`.

    * `recipe`: the SQL statements that make the program after the change. They are stored in the same commit, and
      recovery plans them again.
    * `durable`: False in recovery, when the catalog has the change already.
    * `each`: in recovery, a view that cannot be made is left out. Otherwise the change is made completely or not at
      all.
    * `limit_ms`: its time limit; 0: unlimited.
    * `note`: a record of a durable change, stored in the same commit.
    * `version`: of the program after the change; messages between workers carry it.
    * `adopt`: in recovery, the other workers' graph of these views (`Inspect` "graph plan"), which this worker copies.
    * `first_node`: the number of the graph's first new node, as worker 0 has assigned it; 0: the next one.
    * `back`: these steps undo the last change, which another worker could not make.
    * `restore`: in recovery of several workers, restore the states that all have saved as of one cut.
    """

    steps: tuple[MigrationStep, ...]
    recipe: tuple[str, ...] = ()
    durable: bool = True
    each: bool = False
    limit_ms: int = 0
    note: ChangeOrigin | None = None
    version: int = 0
    adopt: GraphPlan | None = None
    first_node: int = 0
    back: bool = False
    restore: bool = False


@dataclass(frozen=True)
class Rehearse:
    """Predict what these steps would do; nothing is changed. Answer: `Done` with a `Rehearsal`
    (`dataflow/inspect/rehearsal.py`)."""

    request: int
    steps: tuple[MigrationStep, ...]


@dataclass(frozen=True)
class Migrated:
    """Answer to Migrate.

    * `explain`: (view, explanation text).
    * `filling`: views without a first state yet (`Inspect` built).
    * `bootstrap`: (view, node number, plan of the node's input) of full nodes whose first state Spark must
      compute.
    * `failed`: (view, why) of views that cannot be made, if `each` was set.
    * `yielded`: idle views that were dropped.
    * `routes`: with several workers, (view, positions, depth) for each existing view that the steps name. The
      values at these positions of the key determine the worker; none: worker 0. The depth is the largest number
      of exchanges above the view.
    * `first_node`: see `Migrate`.
    * `restored`: whether saved states were restored.
    """

    seq: int
    error: SqlError | None = None
    explain: tuple[tuple[str, str], ...] = ()
    bootstrap: tuple[tuple[str, int, Mir], ...] = ()
    failed: tuple[tuple[str, SqlError], ...] = ()
    filling: tuple[str, ...] = ()
    yielded: tuple[str, ...] = ()
    routes: tuple[tuple[str, tuple[int, ...], int], ...] = ()
    first_node: int = 0
    restored: bool = False
