"""Renders the graph as data, then as text, DOT or JSON, for EXPLAIN, SHOW NORIA, /graph, /metrics and stories.

`nodes` reads the engine. All other functions work on its result, in any process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.nodes import Columns, Node
from noria.dataflow.graph.partition import ONE
from noria.dataflow.graph.ranges import sources
from noria.plan.describing import named


def nodes(engine: Engine) -> list[dict[str, Any]]:
    """Every node: id, operator, parents, kind of state and why, indexes, rows, bytes, bytes saved by sharing,
    counters."""
    return [_node(engine, n) for n in engine.graph.nodes]


def _node(engine: Engine, n: Node) -> dict[str, Any]:
    kept = n.op.stateful and n.state is not None
    views, nbytes = sorted(view_names(engine, n)), n.stored.memory() if kept else 0
    state = ("disk" if n.op.stateful else "none") if not kept else "full" if n.full else "partial"
    return {
        "id": n.id,
        "does": named(n.op.describe(), [f for p in n.parents for f in p.fields]),
        "parents": [p.id for p in n.parents],
        "building": _building(engine, n),
        "failed": _failed(engine, n),
        "reuse": n.reuse,
        "columns": [f.name for f in n.fields],
        "state": state,
        "spread": "" if engine.exchanges is None else _spread(n),
        "pulls": "" if engine.exchanges is None or not n.op.remote else _pulls(n),
        "why": n.why_full if state == "full" else _why_partial(n) if state == "partial" else "",
        "indexes": [[n.fields[c].name for c in cols] for cols in n.indexes] if n.op.stateful else [],
        "ranges": {n.fields[c].name: len(r.starts) for (c,), r in n.ranges.items()},
        "rows": len(n.stored) if kept else 0,
        "bytes": nbytes,
        "views": views,
        "saves": saved(nbytes, len(views), n.plan_shares),
        "rows_in": n.stats.rows_in,
        "rows_out": n.stats.rows_out,
        "ticks": n.stats.ticks,
        "tick_ms": round(n.stats.tick_ms(), 3),
        "requested": n.stats.requested,
        "misses": n.stats.misses,
        "evictions": n.stats.evictions,
        "pull_depth": n.stats.pull_depth,
    }


def _building(engine: Engine, n: Node) -> str:
    """The progress of a node's first state, or that it waits for another state or an index."""
    build = engine.builds.states.get(n)
    if build is None:
        return "waits for what it derives from" if n.inert and n.op.stateful else ""
    progress = engine.builds.progress(build)
    return progress.waits or f"{progress.done} of {progress.total} rows"


def _failed(engine: Engine, n: Node) -> str:
    """Why the node's state could not be built."""
    build = engine.builds.states.get(n)
    return "" if build is None or build.error is None else build.error.message


def _spread(n: Node) -> str:
    """How the node's rows are distributed among several workers."""
    if not n.parts:
        return "rows at any worker"
    return "at worker 0" if n.parts == ONE else "spread by " + " or ".join(_names(n, p) for p in dict.fromkeys(n.parts))


def _pulls(n: Node) -> str:
    """To which workers an exchange sends the request for the rows of a key, and why."""
    if n.full:
        return "asks all workers once, for all rows"
    (above,) = n.parents
    parts = []
    for cols in n.indexes:
        part = next((p for p in above.parts if set(p) <= set(cols)), None)
        parts.append(f"a pull by {_names(n, cols)} asks " + (
            f"all workers (broad): {_names(n, cols)} does not tell where rows of n{above.id} are" if part is None else
            "worker 0 (narrow)" if not part else
            f"one worker (narrow): rows of n{above.id} are spread by {_names(n, part)}"))
    return "; ".join(parts)


def _why_partial(n: Node) -> str:
    """For each key: the states above in which its rows are looked up, and by which columns."""
    if not n.parents:
        return "its rows are on disk"
    parts = []
    for cols in n.indexes:
        if cols in n.pulled:
            states = dict.fromkeys(f"n{m.id}'s {_names(m, theirs)}" for m, theirs in _origins(n, cols))
            parts.append(f"{_names(n, cols)} found by {' and '.join(states)}")
    if n.stats.filled_ahead:
        parts.append(f"{n.stats.filled_ahead:.0f} % filled beforehand")
    return "; ".join(parts)


def _origins(n: Node, cols: Columns) -> Iterator[tuple[Node, Columns]]:
    """The nearest states above that a pull by the columns reads, with the columns it reads them by."""
    for need in sources(n, tuple(dict.fromkeys(cols))):
        parent, theirs = n.parents[need.port], tuple(dict.fromkeys(need.cols))
        if parent.op.stateful:
            yield parent, theirs
        else:
            yield from _origins(parent, theirs)


def _names(n: Node, cols: Columns) -> str:
    return ", ".join(n.fields[c].name for c in cols)


def view_names(engine: Engine, n: Node) -> set[str]:
    """The views that derive from this node."""
    seen, todo, out = {n}, [n], set()
    names = {node: name for name, node in engine.readers.items()}
    while todo:
        m = todo.pop()
        if m in names:
            out.add(names[m])
        for c, _ in m.children:
            if c not in seen:
                seen.add(c)
                todo.append(c)
    return out


def explain(engine: Engine, view: str) -> str:
    """The plan of one view as text, leaf last: which states are partial or full and why, and which views share
    them."""
    return "\n".join(line(_node(engine, n), view) for n in ancestors(engine.readers[view]))


def of_view(graph: Sequence[dict[str, Any]], view: str) -> list[dict[str, Any]]:
    """The nodes that a view derives from, leaf last."""
    return [d for d in graph if view in d["views"]]


def line(d: Mapping[str, Any], view: str) -> str:
    """One line for a node: operator, parents, kind of state and why, other views that use it."""
    parts = [f"n{d['id']}: {d['does']}"]
    if d["parents"]:
        parts.append("from " + ", ".join(f"n{p}" for p in d["parents"]))
    if d["spread"]:
        parts.append(d["spread"])
    if d["pulls"]:
        parts.append(d["pulls"])
    if d["state"] == "full":
        parts.append(f"full: {d['why']}")
    elif d["state"] != "none":
        parts.append("on disk" if d["state"] == "disk" else f"partial: {d['why']}")
    if d["building"]:
        parts.append(f"being built: {d['building']}")
    if d["indexes"]:
        parts.append("indexed by " + "; ".join(", ".join(i) or "()" for i in d["indexes"]))
    if d["ranges"]:
        parts.append("ranges of " + ", ".join(d["ranges"]))
    if d["reuse"]:
        parts.append(d["reuse"])
    others = [v for v in d["views"] if v != view]
    if others:
        parts.append("shared with " + ", ".join(others))
    return " | ".join(parts)


def figures(d: Mapping[str, Any]) -> str:
    """The size of a node's state and its hit rate; "" for a node without state."""
    if d["state"] not in ("partial", "full"):
        return ""
    parts = [f"{d['rows']} row{'' if d['rows'] == 1 else 's'}, {size(d['bytes'])}"]
    if d["requested"]:
        parts.append(f"asked for {d['requested']} key{'' if d['requested'] == 1 else 's'}, "
                     f"{100 * (1 - d['misses'] / d['requested']):.1f} % present")
    if d["evictions"]:
        parts.append(f"{d['evictions']} evicted")
    if d["saves"]:
        parts.append(f"shared, it saves {'up to' if d['state'] == 'partial' else 'about'} {size(d['saves'])}")
    return "; ".join(parts)


def saved(nbytes: int, views: int, parts: Sequence[float] = ()) -> int:
    """The bytes that sharing a state of `nbytes` saves, compared with a state for each view.

    If the state stands for more parts of its columns than there are views, one state for each part is assumed.
    Each is assumed to have all rows. For a partial state this is an upper bound, since each would have only the
    keys read there.
    """
    states = max(views, len(parts))
    return max(0, round(nbytes * (states * (sum(parts) / len(parts) if parts else 1) - 1)))


def size(nbytes: float) -> str:
    """Format bytes with a binary unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"


def dot(graph: list[dict[str, Any]]) -> str:
    """Graphviz source of a rendered graph."""
    out = ["digraph noria {", '  node [shape=box, fontname="monospace"];']
    fill = {"disk": "lightgrey", "partial": "lightyellow", "full": "lightblue", "none": "white"}
    for d in graph:
        label = f"n{d['id']} {d['does']}\\n{d['state']}, {d['rows']} rows".replace('"', "'")
        out.append(f'  n{d["id"]} [label="{label}", style=filled, fillcolor={fill[d["state"]]}];')
        out += [f"  n{p} -> n{d['id']};" for p in d["parents"]]
    return "\n".join([*out, "}"])
