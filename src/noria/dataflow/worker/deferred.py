"""Requests that are answered later: when a build is complete, or when messages of other workers have arrived.

Keeps true: builds run one slice at a time, in their turn (`turns.py`). A cancelled request is answered at the
next check. While a slice runs, the worker reports the request that waits for it as current.

Call an `until_` method of `DeferredRequests` to answer or defer a request; `answered` returns the later replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from noria.core.errors import SqlError, interrupted, view_gone
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.dataflow.backfill.build import Backfill
from noria.dataflow.backfill.full_state import IndexBackfill
from noria.dataflow.cluster.peers import Peers
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.graph.nodes import Node
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Done, Envelope


@dataclass
class _DeferredRequest:
    """A waiting request, its number, and the function that answers it (None: it still waits). `builds`: the builds
    for which it waits."""

    envelope: Envelope
    number: int
    answer: Callable[[], Done | None]
    builds: Callable[[], list[Backfill]]
    on_cancel: Callable[[], object] = lambda: None  # called when the request is cancelled


class DeferredRequests:
    """The deferred requests of a worker (see the module). Each `until_` method answers at once or defers the
    request."""

    def __init__(self, engine: Engine, environment: WorkerEnvironment, peers: Peers | None, worker: int = 0):
        self._engine, self._environment, self._peers, self._worker = engine, environment, peers, worker
        self._waiting: list[_DeferredRequest] = []
        self._tickets = 0
        self.questions: dict[str,
                             Callable[[Envelope, str], packets.Packet | None]] = {  # of `Inspect`, answered later
            "built": self.until_built, "indexed": self.until_indexed,
            "index no longer awaited": self.until_index_not_awaited,
            "looked up": lambda e, table: self.until_indexed(e, table, True),
            "awaited index": lambda e, _: self.until_index_awaited(e), "caught up": self.until_caught_up,
            "frontier": self.until_frontier}

    # -------------------------------------------------------------- waiting requests
    def until_built(self, e: Envelope, view: str) -> packets.Packet | None:
        """Answer when the view has its first state, or why it will not have one."""
        assert isinstance(e.body, packets.Inspect)
        number = e.body.request

        def answer() -> Done | None:
            if view not in self._engine.readers:
                return Done(number, error=view_gone(view))
            if self._engine.ready(view):
                return Done(number)
            error = self._engine.builds.error_of(view)
            return None if error is None else Done(number, error=error)

        return self._later(_DeferredRequest(e, number, answer, lambda: self._of_view(view)))

    def until_indexed(self, e: Envelope, table: str, every: bool = False) -> packets.Packet | None:
        """Answer when the table has the indexes it declares; with `every`, also those that views need."""
        assert isinstance(e.body, packets.Inspect)
        number, builds = e.body.request, self._engine.builds

        def mine() -> list[Backfill]:
            under_way = (*builds.declared.values(), *builds.indexes.values())
            return [b for b in under_way if b.table == table and (every or b.build.declared)]

        def answer() -> Done | None:
            errors = [e for (t, _), e in builds.refused.items() if t == table]
            error = next((e for e in (*errors, *(b.error for b in mine())) if e is not None), None)
            return Done(number, error=error) if error is not None or not mine() else None

        return self._later(_DeferredRequest(e, number, answer, mine))

    def until_index_awaited(self, e: Envelope) -> packets.Packet | None:
        """Answer when an index waits for Spark's files."""
        assert isinstance(e.body, packets.Inspect)
        number = e.body.request

        def answer() -> Done | None:
            made = next(self._engine.builds.awaited(), None)
            if made is None:
                return None
            if not made.ticket:
                self._tickets += 1
                made.ticket = f"{e.epoch}.{self._worker}.{self._tickets}"
            return Done(number,
                        packets.IndexRequest(made.ticket, self._engine.store.tables()[made.table], made.columns))

        return self._later(_DeferredRequest(e, number, answer, list))

    def until_index_not_awaited(self, e: Envelope, ticket: str) -> packets.Packet | None:
        """Answer when the index no longer waits for files."""
        assert isinstance(e.body, packets.Inspect)
        number, builds = e.body.request, self._engine.builds

        def answer() -> Done | None:
            return None if any(m.ticket == ticket for m in builds.awaited()) else Done(number)

        return self._later(_DeferredRequest(e, number, answer, list))

    def deliver(self, body: packets.IndexFiles) -> Done:
        """Pass files to the index that waits for them; without files the worker builds it in slices."""
        made = next((m for m in self._engine.builds.awaited() if m.ticket == body.ticket), None)
        if made is None:
            return Done(body.request, error=SqlError(*UNKNOWN_ERROR, "nobody waits for files of this index any more"))
        error: SqlError | None = None
        if body.files is not None:
            try:
                made.build.deliver(body.files)
            except SqlError as e:
                error = e
        made.build.in_slices()  # no effect if files were delivered
        return Done(body.request, error=error)

    def until_caught_up(self, e: Envelope, argument: str) -> packets.Packet | None:
        """Answer when this worker has the others' earlier commits, beyond `depth` exchanges
        (`frontier_requests.py`). At once if it is the only worker."""
        assert isinstance(e.body, packets.Inspect)
        depth, _, of = argument.partition(" ")
        done = Done(e.body.request)
        if self._peers is None:
            return done
        answers: list[Done] = []
        writers = [int(w) for w in of.split(",") if w]
        self._peers.exchanges.marks.catch_up(int(depth), lambda: answers.append(done), of=writers)
        return self._later(_DeferredRequest(e, done.request, lambda: next(iter(answers), None), list))

    def until_frontier(self, e: Envelope, argument: str) -> packets.Packet | None:
        """Answer when this worker's states have the effects of these messages of other workers. At once if it is the
        only worker."""
        assert isinstance(e.body, packets.Inspect)
        done, peers = Done(e.body.request), self._peers
        if peers is None:
            return done
        last = [(int(w), int(n)) for w, n in (part.split(":") for part in argument.split(","))]

        def answer() -> Done | None:
            frontier = peers.frontier()
            return done if all(frontier[w] >= n for w, n in last) else None

        return answer() or self._later(_DeferredRequest(e, done.request, answer, list))

    def until_fits(self, e: Envelope) -> packets.Packet | None:
        """Answer when all rows of a table have been checked, or when one does not fit."""
        assert isinstance(e.body, packets.CheckRowsFit)
        number, builds = e.body.request, self._engine.builds
        made = builds.fit(e.body.table)

        def answer() -> Done | None:
            error = made.error or made.fitting.error
            if error is None and not made.fitting.over:
                return None
            if error is not None:
                builds.unfit(made)
            return Done(number, error=error)

        return self._later(_DeferredRequest(e, number, answer, lambda: [made], lambda: builds.unfit(made)))

    def until_first_state(self, e: Envelope, node: Node) -> packets.Packet | None:
        """Answer when the node has its first state."""
        assert isinstance(e.body, packets.Bootstrap)
        number, states = e.body.request, self._engine.builds.states

        def answer() -> Done | None:
            build = states.get(node)
            if build is None:
                return Done(number)
            return None if build.error is None else Done(number, error=build.error)

        return self._later(_DeferredRequest(e, number, answer, lambda: [states[node]] if node in states else []))

    def _later(self, waiting: _DeferredRequest) -> Done | None:
        reply = waiting.answer()
        if reply is None:
            self._waiting.append(waiting)
        return reply

    def _of_view(self, view: str) -> list[Backfill]:
        return self._engine.builds.of_view(view) if view in self._engine.readers else []

    # -------------------------------------------------------------- building
    def __bool__(self) -> bool:
        """Whether any request waits."""
        return bool(self._waiting)

    def can_build(self) -> bool:
        """Whether a build can run a slice."""
        return bool(self._engine.builds) and self._engine.builds.next() is not None

    def build(self) -> int:
        """Run one slice of a build. Returns about how many rows it had."""
        builds = self._engine.builds
        build = builds.next()
        if build is None:
            return 0
        self._environment.began(next((w.number for w in self._waiting if build in w.builds()), 0))
        builds.step()
        self._environment.began(0)
        return build.rows

    def answered(self) -> list[tuple[Envelope, Done]]:
        """Return the replies of requests that no longer wait, and remove these."""
        if not self._waiting:
            return []
        replies = [(w, self._reply(w)) for w in self._waiting]
        self._waiting = [w for w, reply in replies if reply is None]
        return [(w.envelope, reply) for w, reply in replies if reply is not None]

    def _reply(self, w: _DeferredRequest) -> Done | None:
        if not self._environment.cancelled(w.number):
            return w.answer()
        w.on_cancel()
        return Done(w.number, error=interrupted())

    # -------------------------------------------------------------- reports
    def waiting(self) -> Iterator[tuple[Envelope, list[str]]]:
        """The waiting requests, and the builds that each waits for."""
        return ((w.envelope, [self._engine.builds.progress(b).what for b in w.builds()]) for w in self._waiting)

    def progress(self) -> list[dict[str, object]]:
        """The builds under way and the views that wait for them."""
        return list(self._list_progress())

    def _list_progress(self) -> Iterator[dict[str, object]]:
        builds = self._engine.builds
        for build in [*builds.indexes.values(), *builds.declared.values(), *builds.fits.values(),
                      *builds.states.values()]:
            progress = builds.progress(build)
            ticket = build.ticket if isinstance(build, IndexBackfill) else ""
            yield {"what": progress.what, "views": self._views(build), "rows": progress.done, "of": progress.total,
                   "state": "failed" if progress.failed else "waits" if progress.waits else "runs",
                   "why": progress.waits, "ticket": ticket}

    def _views(self, build: Backfill) -> list[str]:
        """The views that wait for the build. The name of a view that will replace another ends with a NUL and a
        number, which are cut off."""
        return sorted({v.partition("\0")[0] for v in self._engine.readers if build in self._of_view(v)})
