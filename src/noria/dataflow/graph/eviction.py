"""Eviction with its cascade: all keys that derive from an evicted key are evicted too (section 4.2; rules R7 to R9).

Keeps true: HOLE-CLOSED. `evict` determines the dependent keys before it drops any key, along the dependencies that the
layout recorded for each index.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.dataflow.graph.keys import distinct, folded_keys
from noria.dataflow.graph.nodes import Columns, DependentIndex, GraphRuntime, KeyPattern, Node


def evict(engine: GraphRuntime, node: Node, cols: Columns, keys: Codes) -> None:
    """Make keys of one index missing, and all keys below that were pulled through them."""
    if node.full or not keys.shape[1]:
        return
    if node.thin:  # a thin node drops no delta of a missing key, so no state below becomes stale
        node.stored.evict(cols, np.ascontiguousarray(keys[:, ~node.stored.missing(cols, keys)]))
        return
    present, ranges = ~node.stored.missing(cols, keys), node.ranges.get(cols)
    filled = present if ranges is None else present | ranges.covers(keys[0])
    keys, present = np.ascontiguousarray(keys[:, filled]), present[filled]
    if not keys.shape[1]:
        return
    jobs = [(user, carried(engine, pattern_of(cols, keys), user)) for user in node.users_of(cols)]
    engine.note("evicts", node, cols, keys)
    node.stored.evict(cols, np.ascontiguousarray(keys[:, present]))
    if ranges is not None:
        ranges.cut(keys[0])
    node.stats.evictions += int(np.count_nonzero(present))
    for user, patterns in jobs:
        _evict_user(engine, user, patterns)


def pass_on(engine: GraphRuntime, node: Node, cols: Columns, p: KeyPattern) -> None:
    """Evict the keys below that were pulled through an index and match the pattern; the index itself is not
    changed."""
    for user in node.users_of(cols):
        _evict_user(engine, user, carried(engine, p, user))


def _evict_user(engine: GraphRuntime, user: DependentIndex, patterns: list[KeyPattern]) -> None:
    below, index, _ = user
    for p in patterns:
        if below.op.remote and engine.exchanges is not None:
            engine.exchanges.evict(below, index, p)
            continue
        if index in below.ranges and index[0] not in p.cols:
            unfill(engine, below, index)
        evict(engine, below, index, matching(engine, below, index, p))


def unfill(engine: GraphRuntime, node: Node, cols: Columns) -> None:
    """Mark every range of the index as not filled, here and below. Present keys remain, except those below whose
    value is not present here."""
    ranges = node.ranges[cols]
    if not len(ranges.starts):
        return
    resting = []
    for below, index, _ in node.users.get(cols, ()):
        if index in below.ranges and not below.full:
            keys = below.stored.present(index)
            keys = np.ascontiguousarray(keys[:, ranges.covers(keys[0])])
            resting.append((below, index, np.ascontiguousarray(keys[:, node.stored.missing(cols, keys)])))
    ranges.clear()
    for below, index, keys in resting:
        evict(engine, below, index, keys)
        unfill(engine, below, index)


def pattern_of(cols: Columns, keys: Codes) -> KeyPattern:
    return KeyPattern(cols, keys, np.arange(keys.shape[1]))


def carried(engine: GraphRuntime, pattern: KeyPattern, user: DependentIndex) -> list[KeyPattern]:
    """Carry the pattern along the path to the user. The results are in the user's output columns."""
    below, _, path = user
    patterns = [pattern]
    for node, port, primary in path:
        patterns = [q for p in patterns for q in node.op.carry(engine, node, port, primary, p)]
    return [q for p in patterns for q in below.op.carry(engine, below, 0, None, p)]


def matching(engine: GraphRuntime, node: Node, index: Columns, p: KeyPattern) -> Codes:
    """The keys of an index that agree with a pattern on the columns they share. If the pattern lacks a column of
    the index, only present keys."""
    folds = [node.fields[c].type.folds for c in index]
    if all(c in p.cols for c in index):
        keys = np.ascontiguousarray(p.values[[p.cols.index(c) for c in index]])
        return distinct(folded_keys(engine.symbols, folds, keys))
    have = node.stored.present(index)
    return np.ascontiguousarray(have[:, agreeing(engine, node, index, have, p)])


def agreeing(engine: GraphRuntime, node: Node, index: Columns, keys: Codes, p: KeyPattern) -> npt.NDArray[np.bool_]:
    """Which keys of an index (folded) agree with a pattern on the columns they share."""
    known = [(j, p.cols.index(c)) for j, c in enumerate(index) if c in p.cols]
    folds = [node.fields[index[j]].type.folds for j, _ in known]
    hit = np.zeros(keys.shape[1], np.bool_)
    for v in folded_keys(engine.symbols, folds, p.values[[i for _, i in known]]).T:
        hit |= (keys[[j for j, _ in known]] == v[:, None]).all(axis=0)
    return hit


def evict_through(engine: GraphRuntime, node: Node, port: int, rows: Batch) -> None:
    """Evict the keys below that were pulled through this input of a join and depend on these rows (rule R14)."""
    pattern = KeyPattern(tuple(range(rows.width)), rows.columns, np.arange(len(rows)))
    for user in node.through.get(port, ()):
        _evict_user(engine, user, carried(engine, pattern, user))
