"""Answers the questions of `Inspect` about a worker: its graph, builds, waits and counters, and one measured read.

`DeferredRequests` answers the questions that wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noria.core.errors import SqlError, view_gone
from noria.core.errors.codes import NOT_SUPPORTED_YET
from noria.core.symbols import Symbols
from noria.dataflow.cluster.peers import Peers
from noria.dataflow.engine import memory_limit
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.profile import ReadProfile
from noria.dataflow.graph import ranges
from noria.dataflow.graph.nodes import RemoteRowsNeeded
from noria.dataflow.graph.protocols import BaseStore
from noria.dataflow.inspect import render, validate, waits
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.worker import loads
from noria.dataflow.worker.deferred import DeferredRequests
from noria.dataflow.worker.graph_changes import GraphChanges
from noria.dataflow.worker.one_shots import OneShots
from noria.dataflow.worker.reading import ViewReads
from noria.dataflow.worker.transactions import Transactions
from noria.state.memory.mapped import leaving

Wait = Callable[[RemoteRowsNeeded, Envelope, Callable[[], packets.Packet | None]], None]


class WorkerQuestions:
    """The answers of one worker.  `wait`: runs a request again when other workers' rows have arrived.  `stats`: returns
    the worker's counters."""

    def __init__(self, engine: Engine, store: BaseStore, symbols: Symbols, changes: GraphChanges,
                 transactions: Transactions, shots: OneShots, reading: ViewReads, deferred: DeferredRequests,
                 peers: Peers | None, wait: Wait, stats: Callable[[], dict[str, Any]]):
        self._engine, self._store, self._symbols, self._changes = engine, store, symbols, changes
        self._transactions, self._shots, self._reading, self._deferred = transactions, shots, reading, deferred
        self._peers, self._wait, self._stats = peers, wait, stats

    def answer(self, body: packets.Inspect, e: Envelope) -> packets.Packet | None:
        """Answer a question; None if the reply follows later."""
        answers: dict[str, Callable[[], Any]] = {
            "graph": lambda: render.nodes(self._engine), "builds": self._deferred.progress,
            "graph plan": self._graph_plan, "history": self._store.history, "stats": self._stats,
            "waits": lambda: waits.of_worker(self._peers, self._deferred),
            "forecast": lambda: self._shots.forecast(body.read),
            "table": lambda: loads.needs(self._store, body.argument),
            "idle": lambda: self._changes.is_idle(body.argument),
            "flush ahead": lambda: self._store.flush_ahead(int(body.argument or 0)),
            "few between": lambda: ranges.are_few(self._store, body.argument),
            "lock waits": lambda: [(str(o), *map(str, of)) for o, of in self._store.transactions.locks.waiting()],
            "remembered names": lambda: [n for n in self._store.groups()[1] if n.startswith(body.argument)]}
        if body.what in answers:
            return packets.Done(body.request, answers[body.what]())
        if body.what == "explain":
            if body.argument in self._changes.left_out:
                return packets.Done(body.request, error=self._changes.left_out[body.argument])
            if body.argument not in self._engine.readers:
                return packets.Done(body.request, error=view_gone(body.argument))
            return packets.Done(body.request, render.explain(self._engine, body.argument))
        if body.what == "analyze":
            return self._analyze(body, e)
        if body.what == "validate":
            validate.validate(self._engine)
            return packets.Done(body.request, "every state equals its recomputation")
        return packets.Done(body.request, error=SqlError(*NOT_SUPPORTED_YET, f"A worker cannot be asked '{body.what}'"))

    def _graph_plan(self) -> dict[str, Any]:
        """The graph as data, which another worker can adopt, and the version of its program."""
        return {"plan": self._changes.graph_plan(), "version": 0 if self._peers is None else self._peers.version}

    def _analyze(self, body: packets.Inspect, e: Envelope, profile: ReadProfile | None = None) -> packets.Packet | None:
        """Measure one read node by node, through all its runs while other workers' rows are missing."""
        seen = self._engine.profile = profile or ReadProfile(self._engine.clock or (lambda: 0))
        assert isinstance(body.read, packets.Read)
        try:
            reply = self._reading.read(body.read)
        except RemoteRowsNeeded as r:
            self._wait(r, e, lambda: self._analyze(body, e, seen))
            return None
        finally:
            self._engine.profile = None
        if reply.error is not None:
            return packets.Done(body.request, error=reply.error)
        return packets.Done(body.request, {"rows": reply.rows.num_rows, **seen.as_dict()})

    def stats(self, limit: int) -> dict[str, Any]:
        """Counters and sizes of the worker.  limit: of its memory, in bytes."""
        graph, stored = self._engine.graph.nodes, self._store.memory()
        excess, adhoc = memory_limit.excess_of_adhoc(self._engine, limit)
        return {
            "tick": self._engine.tick_number, "memory": memory_limit.memory(self._engine) + stored + leaving.nbytes,
            "memory_limit": limit, "symbols": self._symbols.memory(), "storage": stored,
            "essential": memory_limit.essential(self._engine), "adhoc_excess": excess, "adhoc_views": adhoc,
            "misses": sum(n.stats.misses for n in graph), "evictions": sum(n.stats.evictions for n in graph),
            "out_of_service": len(self._engine.outages), "operator_failures_total": self._engine.outages.total,
            "open_transactions": len(self._transactions), "lock_waits": self._transactions.waiting,
            "deadlocks_total": self._transactions.deadlocks,
            "sweeps": self._symbols.sweeps, "nodes": len(graph), "views": len(self._engine.readers),
            "messages_total": 0 if self._peers is None else self._peers.sent,
            "tables": {n: self._store.row_count(n) for n, t in self._store.tables().items() if not t.is_beside},
        }
