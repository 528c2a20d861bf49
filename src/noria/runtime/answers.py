"""What several workers answer to one question, as one answer.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

AT_LEADER = frozenset(("explain", "history", "graph plan"))  # all workers would say the same
_COUNTS = ("rows", "bytes", "saves", "rows_in", "rows_out", "ticks", "asked", "misses", "evictions")  # of a node
_MOST = ("nodes", "views", "tick", "sweeps")  # of the counters, those of which all workers have as many


def as_one(what: str, values: Sequence[Any]) -> Any:
    """Of an `Ask`, by worker."""
    if what == "stats":
        return _stats(values)
    if what == "table":
        return {**values[0], "auto_increment": max(v["auto_increment"] for v in values)}
    if what == "graph":
        return [_node(same) for same in zip(*values, strict=True)]
    if what == "builds":
        return [{**build, "what": f"{build['what']} (worker {w})"} for w, builds in enumerate(values)
                for build in builds]
    return values[0]


def _node(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A node of the graph, which all workers have: together."""
    counts = {name: sum(n[name] for n in same) for name in _COUNTS}
    return {**same[0], **counts, "building": next((n["building"] for n in same if n["building"]), "")}


def _stats(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sums, but for what each worker has the same of."""
    found: dict[str, Any] = {"worker": 0}
    for name in values[0]:
        each = [v[name] for v in values]
        if name == "tables":
            found[name] = {t: sum(v.get(t, 0) for v in each) for t in dict.fromkeys(t for v in each for t in v)}
        elif name != "worker":
            found[name] = max(each) if name in _MOST else sum(each)
    return found
