"""Renders metrics in Prometheus' text form, from one flat dictionary of numbers, at each request.

Names that end in `_total` are counters, all others are gauges.  The documentation lists every metric from DESCRIPTIONS,
and a test fails for a number without a description.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

DESCRIPTIONS: dict[str, str] = {
    "reads_total": "SELECTs answered, from anywhere",
    "view_hits_total": "lookups answered from a view in shared memory",
    "upqueries_total": "lookups that missed and asked the worker; clients that wait for the same key share one",
    "cached_replies_total": "SELECTs answered with an encoded reply that was kept",
    "cached_reply_bytes": "memory of kept replies",
    "writes_total": "write statements answered",
    "write_errors_total": "write statements refused",
    "commits_total": "changes sent to workers, each committed and synced; one serves the writes of many clients",
    "one_shots_total": "SELECTs of the worker that were answered without a view; nothing is kept of them",
    "spark_queries_total": "SELECTs that no view can answer, computed by Spark over a snapshot",
    "connections": "MySQL clients connected",
    "login_failures_total": "logins, over MySQL and HTTP, that were refused for their user or password",
    "login_waits_total": "logins that waited, or were refused unchecked, after too many wrong passwords before them",
    "blocked_connections_total": "MySQL connections refused with error 1129, for max_connect_errors of their address",
    "tables": "tables in the program",
    "views": "named views in the program",
    "adhoc_views": "views made for SELECTs that no named view answers",
    "parsed_total": "statements that had to be parsed; the others were recognised by their shape",
    "reply_limit_bytes": "what kept replies may take",
    "front_memory": "resident memory of the front end's process",
    "spark_memory": "resident memory of Spark's driver and its JVM, beside the memory limit",
    "memory_warnings_total": "times that what cannot be evicted was found to exceed the memory limit",
    "worker_tick": "ticks so far; they are also the clock of reads",
    "worker_memory": "memory of states, views, symbols and RocksDB, which the limit bounds",
    "worker_memory_limit": "the worker's part of the memory limit; 0: none",
    "worker_symbols": "memory of the table of strings",
    "worker_open_transactions": "transactions that have a part at the worker",
    "worker_lock_waits": "requests that wait for a lock now",
    "worker_deadlocks_total": "transactions that were rolled back to end a deadlock",
    "worker_sweeps": "times that strings which no state holds were swept",
    "worker_storage": "memory of RocksDB: block cache and write buffers",
    "worker_essential": "memory of full state, which is never evicted; SHOW NORIA STATUS says which and why",
    "worker_adhoc_excess": "full state of ad-hoc views beyond what they may take together: the next look drops some",
    "worker_misses": "keys that some node's partial state was asked for and had to pull",
    "worker_evictions": "keys evicted from some node's partial state",
    "worker_messages_total": "messages from worker to worker, where there are several",
    "worker_out_of_service": "full states whose operator failed, and which wait until they are built again",
    "worker_operator_failures_total": "times that an operator failed; the worker's log has the first of those in a row",
    "worker_nodes": "nodes of the data-flow graph",
    "worker_views": "views that readers may look up in",
    "worker_up": "1 while the worker serves, 0 while it is being restarted",
    "worker_restarts_total": "times a worker came up after the first",
}


# The metrics of each node of the running graph, with the labels `node` and `does`.
NODE_DESCRIPTIONS: dict[str, str] = {
    "rows_in_total": "rows of deltas that came in",
    "rows_out_total": "rows of deltas that went out",
    "ticks_total": "ticks in which it had something to do",
    "tick_seconds_total": "time of these ticks, from one in 64 that is timed",
    "rows": "rows of its state",
    "bytes": "memory of its state",
    "essential": "1 where the state is full, which is never evicted",
    "requested_total": "keys that reads and upqueries requested of its partial state",
    "misses_total": "requested keys that were missing",
    "evictions_total": "keys evicted",
    "pull_depth": "the most states that one miss had to fill, each for the sake of the one below",
}


# The metrics of each front end that is a process of its own, with the label `front_end`.
FRONT_END_DESCRIPTIONS: dict[str, str] = {
    "reads_total": "SELECTs that it answered itself, from shared memory or with a kept reply",
    "connections": "MySQL clients connected to it",
    "private_bytes": "its memory that no other process shares",
    "starts_total": "processes that were started in its place, the first one among them",
}


# The metrics of each database that tables follow (`noria follow`), with the label `source`.
FOLLOW_DESCRIPTIONS: dict[str, str] = {
    "following": "1 while a follower runs and the tables are a past moment of the source; 0 while they are loaded or "
                 "caught up, and when the follower has stopped or is lost",
    "lag_seconds": "how old that moment is; it grows while no follower runs, and is absent until one was heard",
    "lag_bytes": "of the source's binlog that are to be applied yet",
    "transactions_total": "transactions applied since the server started",
    "rows_total": "rows of the first load and changes of rows applied since the server started",
}


class _Numbers:
    def __init__(self, numbers: Mapping[str, Any], graph: Sequence[Mapping[str, Any]],
                 fronts: Sequence[Mapping[str, int]], follows: Sequence[Mapping[str, Any]]):
        self._numbers, self._graph, self._fronts, self._follows = numbers, graph, fronts, follows

    def collect(self) -> Iterator[Metric]:
        for name, value in sorted(self._numbers.items()):
            about = DESCRIPTIONS.get(name) or f"{name.removeprefix('worker_').replace('_', ' ')} of the worker"
            yield _family(name)(f"noria_{name}", about, value=float(value))
        for name, about in NODE_DESCRIPTIONS.items() if self._graph else ():
            family = _family(name)(f"noria_node_{name}", about, labels=["node", "does"])
            for d in self._graph:
                family.add_metric([f"n{d['id']}", d["does"]], _of_node(d, name))
            yield family
        for name, about in FRONT_END_DESCRIPTIONS.items() if self._fronts else ():
            family = _family(name)(f"noria_front_end_{name}", about, labels=["front_end"])
            for number, front in enumerate(self._fronts):
                family.add_metric([str(number)], float(front[name]))
            yield family
        for name, about in FOLLOW_DESCRIPTIONS.items() if self._follows else ():
            family = _family(name)(f"noria_follow_{name}", about, labels=["source"])
            for follow in self._follows:
                if follow[name] is not None:
                    family.add_metric([follow["source"]], float(follow[name]))
            yield family


def _family(name: str) -> Any:
    return CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily


def _of_node(d: Mapping[str, Any], name: str) -> float:
    if name == "tick_seconds_total":
        return float(d.get("tick_ms", 0)) / 1000
    if name == "essential":
        return float(d["state"] == "full")
    return float(d.get(name.removesuffix("_total"), 0))


def render(numbers: Mapping[str, Any], graph: Sequence[Mapping[str, Any]] = (),
           fronts: Sequence[Mapping[str, int]] = (), follows: Sequence[Mapping[str, Any]] = ()) -> bytes:
    """Return all metrics as text.  numbers: by metric name.  graph: nodes in the form of `dataflow/inspect/render.py`.
    fronts, follows: the numbers of each front end and of each followed database."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers(numbers, graph, fronts, follows))
    return bytes(generate_latest(registry))
