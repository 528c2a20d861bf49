"""One worker: one shard of the graph. It receives packets and returns replies (section 6; rules R1, R2).

Call `Worker.handle` for packets, and `do_turns` between them. Results depend only on the packets and the base tables.
The order is: synced commit, tick, publish, acknowledge. So visible rows are durable, and a client reads its own writes.

Keeps true: an exception in a request is that request's error. A user's error changes nothing. A defect (error 1105)
drops the partial states that the request may have changed. An operator that raises is out of service (`outages.py`).
Three exceptions end the worker: a violated invariant, a tick that fails outside its operators, a broken store.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from noria.core.batch import Batch
from noria.core.errors import InvariantViolation, SqlError, internal_error, interrupted
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import ADHOC_SHARE, ONE_SHOT_BYTES, REQUEST_BYTES
from noria.core.symbols import Symbols
from noria.dataflow.cluster.peers import Peers, routed
from noria.dataflow.cluster.pending_gathers import nothing
from noria.dataflow.cluster.remote_scan import RemoteTableReads
from noria.dataflow.engine import memory_limit
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.lookups import LongLookup
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.nodes import RemoteRowsNeeded
from noria.dataflow.graph.protocols import BaseStore, StoreBroken, ViewFactory
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.inspect import export, render
from noria.dataflow.messages import packets
from noria.dataflow.messages.envelopes import error_reply, number_of, runs
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.messages.well_formed import malformed_reason
from noria.dataflow.worker import loads, refill, saving
from noria.dataflow.worker.commits import Commits, TickFailed
from noria.dataflow.worker.deferred import DeferredRequests
from noria.dataflow.worker.fill_ahead import FillAhead
from noria.dataflow.worker.graph_changes import GraphChanges, GraphPlanner
from noria.dataflow.worker.one_shots import OneShots
from noria.dataflow.worker.questions import WorkerQuestions
from noria.dataflow.worker.reading import ViewReads
from noria.dataflow.worker.transactions import Transactions
from noria.dataflow.worker.turns import WorkClass, WorkSource, WorkTurns
from noria.state.memory.mapped import leaving

_READS = frozenset((packets.Read, packets.Query))  # never begun if cancelled before
STEPS_PER_CHECK = 16  # memory is checked this often: a step allocates little
ReadFiles = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]


class Worker:
    """See the module. `planner(engine)` makes the planner of the graph. `large`: Spark computes first states over
    more base rows, and `read_files` opens its files (None: this worker builds all). `large_index`: likewise for indexes
    (0: this worker builds all). `pid`: of the process, for Hello. `workers`: their number. `incarnation`: how often
    this one was started. With several workers the caller sends the messages of `outgoing` after each step."""

    def __init__(self, store: BaseStore, symbols: Symbols, views: ViewFactory,
                 planner: Callable[[Engine], GraphPlanner], worker: int = 0, epoch: int = 1, memory_limit: int = 0,
                 large: int | None = None, large_index: int = 0, read_files: ReadFiles = lambda files: (), pid: int = 0,
                 environment: WorkerEnvironment | None = None, workers: int = 1, incarnation: int = 1):
        self.worker, self.epoch, self.memory_limit = worker, epoch, memory_limit
        self.engine = Engine(store, symbols, views)
        self._peers = Peers(self.engine, epoch, worker, workers, incarnation) if workers > 1 else None
        self._late_replies: list[Envelope] = []  # replies that waited for other workers
        self.store, self._symbols = store, symbols
        self._read_files, self._pid = read_files, pid
        self.checkpoint: Callable[[], None] = lambda: None  # called in each turn: saves `states` when that is due
        self.keep: Callable[[], None] = lambda: None  # saves `states` at an orderly end, before `close`
        self._cut: saving.CutStates | None = None  # of one of several workers
        self._steps = self._bugs = 0
        self._grows = True  # whether states may have grown since memory was checked
        self.environment = environment or WorkerEnvironment()
        self.engine.clock, self.engine.processor = self.environment.clock, self.environment.processor
        self.engine.builds.awaited_rows = large_index
        self.engine.builds.state_bytes = self.environment.state_bytes
        self.engine.builds.adhoc_bytes = int(ADHOC_SHARE * memory_limit)
        self.engine.builds.on_defect = partial(self._log_defect, "a slice of what is being built")
        self.engine.outages.note, self.engine.outages.log = self.environment.note, self._log_exception
        self._deferred = DeferredRequests(self.engine, self.environment, self._peers, worker)
        self.changes = GraphChanges(self.engine, store, planner(self.engine), self.environment, large)
        self.transactions = Transactions(self.engine, worker, store.transactions, self._again,
                                         lambda e, reply: self._late_replies.append(self._reply(e, reply)))
        self.engine.held_by_transactions = store.transactions.held
        if self._peers is not None:
            self._peers.remote_scan.deltas = self.transactions.deltas
        self.shots = OneShots(self.engine, self.changes, symbols, self.environment, self._peers, self._log_defect,
                               self._again, self._wait, self.transactions)
        self.scans = self.shots.scans
        self._reading = ViewReads(self.engine, self.changes, symbols, self.environment, self.shots.results)
        self._questions = WorkerQuestions(self.engine, store, symbols, self.changes, self.transactions, self.shots,
                                          self._reading, self._deferred, self._peers, self._wait, self.stats)
        self.fill_ahead = FillAhead(self.engine, memory_limit,
                                    partial(self._log_defect, "a view that is filled beforehand"),
                                    None if self._peers is None else self._peers.exchanges)
        self._turns = WorkTurns(self._classes(), self.environment.clock or (lambda: 0))
        commits = Commits(self.engine, store, (self.engine.builds, self.scans, self.engine.lookups),
                          self.transactions.ended, workers == 1)
        self._handlers: dict[type, Callable[[Any, Envelope], packets.Packet | None]] = {
            **dict.fromkeys((packets.Write, packets.Prepare, packets.Decide), partial(self._write, commits.write)),
            packets.Ingest: self._after_takeover(commits.ingest),
            packets.Read: self._read, packets.Query: self.shots.add, packets.Inspect: self._questions.answer,
            packets.NextRows: self.shots.results.request_next,
            packets.Migrate: lambda b, e: routed(self._peers, b, lambda: self._migrate(b, e)),
            packets.ReadMany: self._read_many, packets.FillKeys: self._fill_keys,
            packets.Bootstrap: self._bootstrap, packets.CheckRowsFit: lambda _, e: self._deferred.until_fits(e),
            **self.transactions.handlers,
            packets.PredictEffect: self.transactions.planning(partial(commits.predict_effect, workers)),
            packets.FindConflicts: self.transactions.planning(commits.find_conflicts),
            packets.CheckUnique: self.transactions.planning(commits.check_unique),
        }
        self._answers: dict[type, Callable[[Any], Any]] = {
            packets.Snapshot: self._snapshot, packets.CheckIngest: partial(loads.check, store),
            packets.Evict: self._evict, packets.SetLimit: self._set_limit,
            packets.Rehearse: self._rehearse, packets.IndexFiles: self._deferred.deliver,
            packets.UniqueEntries: commits.entries, packets.ReadPage: commits.page,
        }

    # -------------------------------------------------------------- the step
    def hello(self) -> packets.Hello:
        epoch, seq = self.store.applied()
        return packets.Hello(self.worker, self._pid, epoch, seq, self.store.recipe(),
                             tuple(self.store.tables().values()), *self.store.groups(),
                             "" if self._cut is None else self._cut.files.cut)

    def step(self, envelopes: Sequence[Envelope]) -> list[Envelope]:
        """Handle packets in order and some work in turns. Each packet has one reply, now or later."""
        return [*self.handle(envelopes), *self.do_turns()]

    def handle(self, envelopes: Sequence[Envelope]) -> list[Envelope]:
        """Handle packets in order; returns the immediate replies. A violation carries the story, which is also
        logged."""
        with self._with_story():
            return self._handled(envelopes)

    def do_turns(self) -> list[Envelope]:
        """Run some work in turns on a worker that receives packets; returns the replies that it completed."""
        self._steps += 1
        has_work, tidies = self._has_work(), self._steps % STEPS_PER_CHECK == 0
        if not (has_work or tidies or self._late_replies or self._deferred) and self._peers is None:
            return []
        with self._with_story():
            out = self._build(0, has_work)
            if tidies:
                self.hold_limit()
                self.engine.advance()
                leaving.give_back()
            return out

    @contextmanager
    def _with_story(self) -> Iterator[None]:
        """Attach the story to a violation and log both."""
        try:
            yield
        except InvariantViolation as v:
            v.story = self.engine.story.describe()
            self.environment.note(str(v))
            raise

    def _handled(self, envelopes: Sequence[Envelope]) -> list[Envelope]:
        out = []
        ours = [e for e in envelopes if e.epoch == self.epoch]
        self.engine.outages.retry()
        for together in runs(ours):
            if isinstance(together[0].body, packets.PeerPacket):
                self._receive(together)
                continue
            if len(together) > 1:
                self._reading.prefill([e.body for e in together if isinstance(e.body, packets.Read)])
            for e in together:
                if (reply := self._answered(e)) is not None:
                    out.append(self._reply(e, reply))
                self.transactions.run_granted()
            if self._peers is not None:
                self._peers.exchanges.run_ready()
        self.environment.began(0)
        return out

    def _build(self, budget_ms: int, has_work: bool) -> list[Envelope]:
        """Work in turns; returns the replies that waited for the work. `has_work`: as `_has_work` returns. `budget_ms`:
        0 on a worker that receives packets."""
        if self._peers is None and not (has_work or self._late_replies or self._deferred):
            return []
        self.shots.end_cancelled()
        if budget_ms:
            self._turns.quiet(budget_ms)
        else:
            self._turns.do_quantum()
        if self._peers is not None:
            self._peers.exchanges.run_ready()
        late, self._late_replies = self._late_replies, []
        return late + [self._reply(e, reply) for e, reply in (*self._deferred.answered(), *self.shots.answered())]

    def _classes(self) -> dict[WorkClass, WorkSource]:
        """The classes of work that run in turns."""
        shots, lookups = self.shots, self.engine.lookups
        return {WorkClass.LOOKUPS: WorkSource(lambda: bool(lookups), self._look_up),
                WorkClass.QUERIES: WorkSource(shots.has_fresh, shots.fresh),
                WorkClass.RESULTS: WorkSource(lambda: bool(shots.results), shots.send_chunk),
                WorkClass.SCANS: WorkSource(shots.has_larger, shots.larger),
                WorkClass.BUILDS: WorkSource(self._deferred.can_build, self._deferred.build),
                WorkClass.REFILLS: WorkSource(partial(refill.has_work, self.engine), partial(refill.step, self.engine)),
                WorkClass.FILLS: WorkSource(self.fill_ahead.has_work, self.fill_ahead.step)}

    def _look_up(self) -> int:
        units, failed = self.engine.lookups.step(self.environment, self._again, self._log_defect)
        self._late_replies += [self._reply(e, reply) for e, reply in failed]
        return units

    # -------------------------------------------------------------- other workers
    def outgoing(self) -> list[tuple[int, Envelope]]:
        """The messages to other workers, with their receivers, in order."""
        return [] if self._peers is None else self._peers.outgoing()

    def frontier(self) -> tuple[int, ...]:
        """The frontier (see `Peers.frontier`)."""
        return () if self._peers is None else self._peers.frontier()

    def _receive(self, messages: Sequence[Envelope]) -> None:
        assert self._peers is not None
        self._grows = True
        try:
            self._peers.receive(messages)
        except Exception as bug:
            raise TickFailed(f"the messages of other workers could not be applied: {bug!r}") from bug

    def _read(self, body: packets.Read, e: Envelope) -> packets.Packet | None:
        """Read at once, or when other workers' rows or a long lookup are complete, or when the read is cancelled."""
        try:
            if body.key_range is None:
                self.fill_ahead.missed(body.view, 1)
            with self.engine.lookups.bounded(e):
                return self._reading.read(body)
        except LongLookup as lookup:
            self.engine.lookups.wait(e, lookup)
        except RemoteRowsNeeded as r:
            self._wait(r, e)
        return None

    def _read_many(self, body: packets.ReadMany, e: Envelope) -> packets.Packet:
        for alike in body.alike:
            self.fill_ahead.missed(alike.view, len(alike.requests))
        return self._reading.many(body, lambda r: self._again(replace(e, body=r)))

    def _fill_keys(self, body: packets.FillKeys, e: Envelope) -> packets.Packet | None:
        """Fill at once, or when other workers' rows are complete."""
        self.fill_ahead.missed(body.view, len(body.keys))
        try:
            return self._reading.fill(body)
        except RemoteRowsNeeded as r:
            self._wait(r, e)
        return None

    def _wait(self, r: RemoteRowsNeeded, e: Envelope, run: Callable[[], packets.Packet | None] | None = None,
              remote: RemoteTableReads | None = None) -> None:
        """Run the request again when other workers' rows have arrived. `remote`: those it has received."""
        assert self._peers is not None
        number = number_of(e)
        self._peers.exchanges.waiting.wait(
            r, number, lambda: self._again(e, run),
            lambda error: self._late_replies.append(self._reply(e, error_reply(e, error))),
            cancelled=lambda: self.environment.cancelled(number), held=nothing if remote is None else remote.held)

    def _reply(self, e: Envelope, reply: packets.Packet) -> Envelope:
        return Envelope(self.epoch, self.worker, e.seq, reply, self.watermark())

    def _again(self, e: Envelope, run: Callable[[], packets.Packet | None] | None = None) -> None:
        if (reply := self._answered(e, run)) is not None:
            self._late_replies.append(self._reply(e, reply))

    def _after_takeover(self, change: Callable[[Any, Envelope], packets.Done]
                        ) -> Callable[[Any, Envelope], packets.Done]:
        """A handler that marks views of earlier lives as dead before it makes the change."""
        def made(body: Any, e: Envelope) -> packets.Done:
            self.engine.views.take_over()
            return change(body, e)

        return made

    def _write(self, commit: Callable[[Any, Envelope], packets.Wrote], body: Any, e: Envelope) -> packets.Wrote:
        """Commit, and report to which workers its tick sent messages: all workers for a write committed in an earlier
        life. No reader of the change reads views of an earlier life."""
        self.engine.views.take_over()
        if self._peers is None:
            return commit(body, e)
        sent = -1 if self.store.applied() >= (e.epoch, e.seq) else self._peers.sent
        return replace(commit(body, e), recipients=self._peers.recipients(sent))

    # -------------------------------------------------------------- requests
    def _answered(self, e: Envelope, run: Callable[[], packets.Packet | None] | None = None) -> packets.Packet | None:
        """The reply, or None if it follows later. `run`: continues the request instead of starting it."""
        if why := malformed_reason(e.body):
            return error_reply(e, SqlError(*UNKNOWN_ERROR, why))
        number = number_of(e)
        if type(e.body) in _READS and self.environment.cancelled(number):
            return error_reply(e, interrupted())
        self.environment.began(number)
        self._grows |= not isinstance(e.body, packets.Query)
        self.engine.story.request(number, type(e.body).__name__)
        limit_ms = getattr(e.body, "limit_ms", 0)
        nbytes = ONE_SHOT_BYTES if isinstance(e.body, packets.Query) else REQUEST_BYTES
        on_defect = partial(self._log_defect, f"{type(e.body).__name__} {number}")
        environment = self.environment
        self.engine.limits = RequestLimits(environment.clock, limit_ms, partial(environment.cancelled, number), nbytes,
                                           state_bytes=environment.state_bytes, on_defect=on_defect,
                                           processor=environment.processor)
        try:
            return run() if run is not None else self._handle(e)
        except SqlError as error:
            return error_reply(e, error)
        except (InvariantViolation, StoreBroken, TickFailed):
            raise
        except Exception as bug:
            return self._answer_defect(e, bug)
        finally:
            self.engine.limits = None

    def _answer_defect(self, e: Envelope, bug: Exception) -> packets.Packet:
        """Answer a request that hit a defect, and drop the partial states that it may have left half changed."""
        error = self._log_defect(f"{type(e.body).__name__} {number_of(e)}", bug)
        if isinstance(e.body, packets.Query | packets.Rehearse):
            return error_reply(e, error)  # these packets change no state
        if not isinstance(e.body, packets.Read):
            self.engine.forget_partial(self.engine.graph.nodes)
        elif e.body.view in self.engine.readers:
            self.engine.forget_partial(ancestors(self.engine.readers[e.body.view]))  # which the read may have changed
        return error_reply(e, error)

    def _log_defect(self, what: str, bug: Exception) -> SqlError:
        """Log a defect under a number; returns the error with this number."""
        return internal_error(self._log_exception(what, bug))

    def _log_exception(self, what: str, bug: Exception) -> str:
        """Log a defect; returns the number of the log entry."""
        self._bugs += 1
        name = f"W{self.worker}.{self.epoch}.{self._bugs}"
        lines = "".join(traceback.format_exception(bug))
        self.environment.note(f"internal error {name} in {what}:\n{lines}")
        return name

    def watermark(self) -> packets.Watermark:
        return ((self.worker, self.engine.tick_number),)

    def idle(self, budget_ms: int) -> tuple[list[Envelope], bool]:
        """Do deferrable work: memory limit, clock of reads, dropped data on disk and in memory, builds. Returns
        the replies that waited for it, and whether more is left."""
        with self._with_story():
            if self._grows:
                self.hold_limit()
            self.engine.outages.retry()
            self._grows = has_work = self._has_work()
            self.engine.advance()
            untidy = [self.store.tidy(), leaving.give_back(), self.engine.views.tidy()]
            replies = self._build(budget_ms, has_work)
            return replies, any(untidy) or self._has_work()

    def _has_work(self) -> bool:
        """Whether any work in slices is left."""
        return bool(self.shots or self.engine.lookups or self.engine.builds or refill.has_work(self.engine)
                    or self.fill_ahead.has_work())

    def states(self) -> Iterator[saving.Named]:
        """Full states and present keys worth saving, with their names."""
        return saving.worth_saving(self.engine, self.changes.graph_plan())

    def restore(self, states: saving.States, deltas: Mapping[str, Batch]) -> None:
        """Offer the states that an earlier life saved, whose texts this symbol table has, and the rows written
        since by table. Call it before the program is restored."""
        self.engine.saved = saving.RestorableStates(self.engine, states, self.changes.graph_plan, deltas)

    def save_at_cuts(self, files: saving.CheckpointFiles) -> None:
        """Save and restore states with the other workers. Call it before `hello`."""
        self._cut = cut = saving.CutStates(self.engine, self.changes.graph_plan, files)
        self._answers |= {packets.SaveStates: cut.save, packets.KeepStates: cut.keep}
        self._deferred.questions |= {
            "checkpoint": lambda e, _: packets.Done(number_of(e), cut.status()),
            "restorable": lambda e, name: packets.Done(number_of(e), files.is_restorable(name))}

    @property
    def restoring(self) -> bool:
        """Whether states of an earlier life wait for the program or for the rows written since."""
        return self.engine.saved is not None and self.engine.saved.waits

    def close(self) -> None:
        self.store.close()
        leaving.finish()

    def _handle(self, e: Envelope) -> packets.Packet | None:
        body = e.body
        if isinstance(body, packets.Inspect) and body.what in ("caught up", "frontier"):
            self.engine.views.take_over()  # a session that waited must not read views of an earlier life
        if isinstance(body, packets.Inspect) and body.what in self._deferred.questions:
            return self._deferred.questions[body.what](e, body.argument)
        if type(body) in self._handlers:
            return self._handlers[type(body)](body, e)
        answer: packets.Packet = self._answers[type(body)](body)
        return answer

    # -------------------------------------------------------------- the program
    def _migrate(self, body: packets.Migrate, e: Envelope) -> packets.Migrated:
        if body.durable and self.store.applied() >= (e.epoch, e.seq):
            return packets.Migrated(e.seq)  # a resend: the recovered program has it already

        def commit() -> None:
            if body.durable:
                self.store.set_recipe(body.recipe, e.epoch, e.seq, body.note)

        before = 0 if self._peers is None else self._peers.version
        if self._peers is not None and body.version:
            self._peers.version = body.version  # messages sent meanwhile carry it
        failed: tuple[tuple[str, SqlError], ...] = ()
        if body.restore and self._cut is not None:
            self._cut.offer()
        saved = self.engine.saved
        if body.adopt is not None:
            self.changes.adopt(body.steps, body.adopt)
        elif body.each:
            failed = tuple(self.changes.each(body.steps))
            commit()
        elif (error := self.changes.change(body.steps, commit, body.back)) is not None:
            if self._peers is not None:
                self._peers.stayed(before)
            return packets.Migrated(e.seq, error)
        restored = body.restore and saved is not None and not saved.waits
        if self._cut is not None and (body.each or body.adopt is not None):
            self._cut.started(restored)
        if self._peers is not None and not body.durable:
            self.engine.views.take_over()  # views of an earlier life would miss the others' writes
        self.scans.check_tables()
        self.engine.lookups.check_tables()
        if self._peers is not None and body.version:
            self._peers.reached(body.version)
        views = [s.view.name for s in body.steps if isinstance(s, packets.AddView)]
        made = [v for v in views if v in self.engine.readers]
        return packets.Migrated(e.seq, None, tuple((v, render.explain(self.engine, v)) for v in made),
                                tuple(self._waiting(made)), failed,
                                tuple(v for v in made if not self.engine.ready(v)),
                                tuple(s.view for s in body.steps if isinstance(s, packets.DropView) and s.idle
                                      and s.view not in self.engine.readers), restored=restored)

    def _rehearse(self, body: packets.Rehearse) -> packets.Packet:
        return packets.Done(body.request, self.changes.rehearse(body.steps))

    def _waiting(self, views: list[str]) -> Iterator[tuple[str, int, Any]]:
        """Nodes of these views whose first state Spark must compute, with the plan of their input."""
        for v in views:
            for n in self.engine.waiting(v):
                yield v, n.id, self.changes.input_plan(n)

    def _bootstrap(self, body: packets.Bootstrap, e: Envelope) -> packets.Packet | None:
        node = next((n for n in self.engine.graph.nodes if n.id == body.node), None)
        if node is None or node.stash is None:
            return packets.Done(body.request)  # dropped meanwhile, or done before
        if node not in self.engine.builds.states:  # else it was sent twice
            rows = export.batches_of(self._read_files(body.files), node.parents[0].fields, self._symbols)
            self.engine.bootstrap(node, rows)
        return self._deferred.until_first_state(e, node)

    # -------------------------------------------------------------- reads and questions
    def _snapshot(self, body: packets.Snapshot) -> packets.Packet:
        try:
            self.store.checkpoint(body.path)
        except SqlError as error:
            return packets.Done(body.request, error=error)
        except StoreBroken as error:  # in the copy: the requester has removed its directory
            return packets.Done(body.request, error=SqlError(*UNKNOWN_ERROR, f"no snapshot was made: {error}"))
        self.engine.snapshot_for(body.node)
        views = {name: export.view_tables(self.engine, name, self._symbols) for name in self.engine.readers
                 if body.views and self.engine.ready(name)}
        return packets.Done(body.request, {"watermark": self.watermark(), "views": views})

    def _evict(self, body: packets.Evict) -> packets.Packet:
        return packets.Done(body.request, memory_limit.evict_bytes(self.engine, body.nbytes or 2**62))

    def _set_limit(self, body: packets.SetLimit) -> packets.Packet:
        self.memory_limit = body.nbytes
        self.fill_ahead.limit = body.nbytes
        self.engine.builds.adhoc_bytes = int(ADHOC_SHARE * body.nbytes)
        try:
            self.store.hold_memory(body.nbytes)
        except SqlError as error:  # a full disk: the unwritten rows are still in memory
            return packets.Done(body.request, error=error)
        self.hold_limit()
        return packets.Done(body.request)

    def stats(self) -> dict[str, Any]:
        """Counters and sizes of this worker."""
        return self._questions.stats(self.memory_limit)

    # -------------------------------------------------------------- memory
    def hold_limit(self) -> None:
        memory_limit.hold_limit(self.engine, self.memory_limit)
