"""Combines the answers of several workers to one question. Pure. Call `combined_replies`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from noria.dataflow.messages.packets import Done, Evict, Inspect, Packet, QueryForecast, Rehearse
from noria.dataflow.messages.rehearsal import NodePlan, Rehearsal, ViewPlan

AT_LEADER = frozenset(("explain", "history", "graph plan"))  # all workers would say the same
_COUNTS = ("rows", "bytes", "saves", "rows_in", "rows_out", "ticks", "requested", "misses", "evictions")  # of a node
_MOST = ("nodes", "views", "tick", "sweeps")  # counters that are equal at all workers


def as_one(body: Packet, values: Sequence[Any]) -> Any:
    """Combine the values of all workers, in the order of their numbers."""
    if isinstance(body, Evict):
        return sum(values)
    if isinstance(body, Rehearse):
        return _rehearsed(values)
    return _inspected(body.what, values) if isinstance(body, Inspect) else values[0]


def combined_replies(body: Packet, replies: Sequence[Done]) -> Done:
    """Combine replies; an error of any worker is the answer."""
    wrong = next((r for r in replies if r.error is not None), None)
    return wrong or replace(replies[0], value=as_one(body, [r.value for r in replies]))


def _inspected(what: str, values: Sequence[Any]) -> Any:
    if what in ("idle", "flush ahead", "few between"):
        return all(values)
    if what == "forecast":
        return _foreseen(values)
    if what == "waits":
        return [f"worker {w}: {text}" for w, some in enumerate(values) for text in some]
    if what == "remembered names":
        return sorted({name for names in values for name in names})
    if what == "stats":
        return _stats(values)
    if what == "table":
        return {**values[0], "auto_increment": max(v["auto_increment"] for v in values),
                "rows": sum(v["rows"] for v in values)}
    if what == "graph":
        return _graph(values)
    if what == "builds":
        return [{**build, "what": f"{build['what']} (worker {w})"} for w, builds in enumerate(values)
                for build in builds]
    return _analyzed(values) if what == "analyze" else values[0]


def _foreseen(each: Sequence[QueryForecast]) -> QueryForecast:
    """The most expensive way of any worker, and the sum of rows."""
    return QueryForecast(max((f.way for f in each), key=("one-shot", "slices", "too much").index),
                         sum(f.rows for f in each))


def _graph(values: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The nodes that all workers have: during a change some have others."""
    by_id = [{node["id"]: node for node in nodes} for nodes in values]
    return [_node(tuple(nodes[n] for nodes in by_id)) for n in by_id[0] if all(n in nodes for nodes in by_id)]


def _analyzed(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums over the parts of one read, at the workers that executed them."""
    nodes: dict[int, dict[str, Any]] = {}
    for number, visits in (item for seen in each for item in seen["nodes"].items()):
        known = nodes.get(number, dict.fromkeys(visits, 0))
        nodes[number] = {name: round(known[name] + n, 3) for name, n in visits.items()}
    return {"rows": sum(seen["rows"] for seen in each), "misses": sum(seen["misses"] for seen in each),
            "depth": max(seen["depth"] for seen in each), "nodes": nodes}


def _node(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One node of the graph, with the sums of all workers."""
    counts = {name: sum(n[name] for n in same) for name in _COUNTS}
    return {**same[0], **counts, "building": next((n["building"] for n in same if n["building"]), "")}


def _rehearsed(each: Sequence[Rehearsal]) -> Rehearsal:
    """Combine rehearsals: all workers would make the same change, each to its own rows."""
    def of_view(name: str, plans: Iterable[Sequence[NodePlan]]) -> ViewPlan:
        return ViewPlan(name, tuple(replace(n[0], rows=sum(m.rows for m in n), nbytes=sum(m.nbytes for m in n))
                                    for n in zip(*plans, strict=True)))

    views = tuple(of_view(same[0].name, [v.nodes for v in same]) for same in zip(*(r.views for r in each), strict=True))
    indexes = tuple(replace(same[0], rows=sum(i.rows for i in same))
                    for same in zip(*(r.indexes for r in each), strict=True))
    return Rehearsal(views, indexes, each[0].freed_nodes, sum(r.freed_bytes for r in each),
                     {t: sum(r.rows.get(t, 0) for r in each) for t in each[0].rows})


def _stats(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sums of counters; the maximum of those that are equal at all workers."""
    combined: dict[str, Any] = {}
    for name in values[0]:
        each = [v[name] for v in values]
        if name in ("tables", "adhoc_views"):
            combined[name] = {t: sum(v.get(t, 0) for v in each) for t in dict.fromkeys(t for v in each for t in v)}
        else:
            combined[name] = max(each) if name in _MOST else sum(each)
    return combined
