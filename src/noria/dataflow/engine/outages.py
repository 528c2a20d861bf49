"""Takes nodes whose operators raised, and all nodes below them, out of service until their states are built again.

Errors of a row's evaluation are values, which `core/expressions/failures.py` handles. When an operator raises in a
tick, its state may be half changed and its output is unknown. So the rest of the tick does not update the nodes below
it on this worker. After the tick every state that derives from it is dropped:

* A partial state drops its keys; the next read pulls them again.
* A full state is built again in slices. Until it is complete, reads of its views return the error.
* Other workers gather the rows again that they had received from it.

Keeps true: all other nodes complete the tick. Broken invariants and a broken store propagate as exceptions. After
repeated failures a state waits longer before each build. Only the first of consecutive failures is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from noria.core.errors import SqlError, is_out_of_service, out_of_service
from noria.core.limits import REBUILD_AFTER_MS, REBUILD_LONGEST_MS
from noria.dataflow.backfill.build import Backfill
from noria.dataflow.backfill.exchange_state import BackfillReceiver
from noria.dataflow.backfill.full_state import SparkBackfill
from noria.dataflow.backfill.scan import ScanBackfill
from noria.dataflow.engine.renewal import FATAL, restart, retry_build
from noria.dataflow.engine.runtime import EngineRuntime
from noria.dataflow.graph.graph import local_ancestors
from noria.dataflow.graph.nodes import Node


@dataclass
class Outage:
    """`error`: the answer to reads. `times`: consecutive failures. `next_at`: the state is not built before this
    time of the engine's clock, in nanoseconds."""

    error: SqlError
    times: int = 0
    next_at: int = 0


class Outages:
    """The nodes out of service.

    `note`: writes a line to the log. `log`: logs an exception and returns the number of the entry; None: there is
    no log, so exceptions propagate. `total`: the number of failures.
    """

    def __init__(self, engine: EngineRuntime):
        self._engine = engine
        self._known: dict[Node, Outage] = {}  # by the node that raised, or whose state could not be built
        self._raised: list[Node] = []  # in the tick under way
        self._halted: list[Node] = []
        self.total = 0
        self.note: Callable[[str], object] = lambda text: None
        self.log: Callable[[str, Exception], str] | None = None

    def of_build(self, build: Backfill, bug: Exception) -> SqlError:
        """The error that a failed build reports. If an operator raised for a full state, that state is built
        again later."""
        raised = not isinstance(bug, SqlError) or is_out_of_service(bug)
        if isinstance(build, ScanBackfill | SparkBackfill | BackfillReceiver) and (raised or build.node in self._known):
            return self.failed(build.node, bug)
        if isinstance(bug, SqlError):
            return bug
        if (on_defect := self._engine.builds.on_defect) is None:
            raise bug
        return on_defect(bug)

    def __len__(self) -> int:
        """The number of full states that are out of service."""
        return sum(1 for n in self._known if self._is_down(n))

    # -------------------------------------------------------------- an operator raised
    def begin(self, node: Node, bug: Exception) -> None:
        """Exclude the nodes below an operator that raised, on this worker, from the rest of the tick."""
        if isinstance(bug, FATAL):
            raise bug
        self.failed(node, bug)
        self._raised.append(node)
        for n in self._below(node):
            if not n.inert:
                n.inert = True
                self._halted.append(n)

    def _below(self, node: Node) -> Iterable[Node]:
        below = {node}
        for n in self._engine.graph.nodes:  # in topological order
            if not n.op.remote and not below.isdisjoint(n.parents):
                below.add(n)
        return below

    def failed(self, node: Node, bug: Exception) -> SqlError:
        """Record a failure and return the error for reads. Only the first of consecutive failures is logged."""
        known, now = self._known.get(node), self._now()
        if known is None or now - known.next_at > REBUILD_LONGEST_MS * 1_000_000:
            known = self._known[node] = Outage(self._report(node, bug))
        known.times += 1
        self.total += 1
        wait_ms = min(REBUILD_AFTER_MS * 2 ** min(known.times - 2, 20), REBUILD_LONGEST_MS) if known.times > 1 else 0
        known.next_at = now + int(wait_ms * 1_000_000) if self._engine.clock is not None else 0
        return known.error

    def _report(self, node: Node, bug: Exception) -> SqlError:
        """Log the failure; returns the error that reads of the node's views return."""
        what = node.op.describe()
        if isinstance(bug, SqlError) and is_out_of_service(bug):  # reported by another worker
            return bug
        if self.log is None:
            raise bug
        if isinstance(bug, SqlError):
            self.note(f"{node} is out of service: {bug}")
            return out_of_service(what, bug.message)
        number = self.log(f"a tick or the first state of {node}", bug)
        return out_of_service(what, f"{type(bug).__name__}: {bug}", number)

    def fail(self, node: Node, error: SqlError) -> None:
        """Between ticks: put a node out of service whose state is stale."""
        self.begin(node, error)
        self.contain_failures()

    # -------------------------------------------------------------- after the tick
    def contain_failures(self) -> None:
        """After a tick: drop every state that derives from a node that raised, and schedule its next build."""
        if not self._raised:
            return
        raised, self._raised = self._raised, []
        for n in self._halted:
            n.inert = False
        self._halted = []
        engine, first = self._engine, self._known[raised[0]]
        for n in restart(engine, set(raised)):
            waits = max((self._known[m] for m in raised if m in local_ancestors(n)), key=lambda o: o.next_at,
                        default=first)
            self._known[n] = waits
            if waits.next_at > self._now():
                engine.builds.states[n].error = waits.error

    def retry(self) -> None:
        """Build the states again whose waiting time is over."""
        if not self._known:
            return
        for node in list(self._known):
            if node not in self._engine.graph.nodes:
                del self._known[node]
        now, engine = self._now(), self._engine
        down = [n for n in self._known if self._is_down(n)]
        for n in [n for n in down if self._known[n].next_at <= now]:
            retry_build(engine, n)
        if down:
            engine.builds.update_readiness()

    def _is_down(self, node: Node) -> bool:
        build = self._engine.builds.states.get(node)
        return build is not None and build.error is not None

    def _now(self) -> int:
        return 0 if self._engine.clock is None else self._engine.clock()
