"""Compares every state with a recomputation from the base tables that uses no state: call `validate`.

It checks DELTA-SUM, UPDATE-COMPLETE, NO-SPURIOUS and READER-CONVERGES for every present key of every index. It
checks HOLE-CLOSED by reading each present key through its parents, where no key may be missing.

One of several workers checks only states that derive from its own rows; `noria verify` and the simulator compare
the others. The comparison is slow: use it in tests and by `Inspect("validate")`.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import InvariantViolation
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.keys import folded_keys
from noria.dataflow.graph.nodes import Columns, MissMode, Node
from noria.dataflow.graph.ranges import uncovered

Rows = Counter[tuple[int, ...]]


def validate(engine: Engine) -> None:
    """Check every state. Raises InvariantViolation with the node and the key."""
    truth = recompute(engine, own=True)
    for n in engine.graph.nodes:
        if n.op.stateful and n.state is not None and n.live and not n.inert and _is_own(engine, n):
            _check_state(engine, n, truth[n])
            if not n.full and n.parents:
                _check_holes(engine, n)
            for cols in n.ranges:
                _check_ranges(n, cols, truth[n])


def _is_own(engine: Engine, n: Node) -> bool:
    """Whether the node derives from this worker's rows alone."""
    return engine.exchanges is None or not any(a.op.remote for a in ancestors(n))


def recompute(engine: Engine, own: bool = False) -> dict[Node, Rows]:
    """Compute every node's rows from the base tables, by each operator's algebra on complete relations.  own: without
    the rows that another worker has, as of constants."""
    truth: dict[Node, Rows] = {}
    for n in engine.graph.nodes:
        if own and n.all_remote:
            rows = Batch.empty(n.width)
        elif not n.parents:
            rows = concat(list(n.op.stream(engine, n)), n.width)
        else:
            rows = n.op.recompute(engine, n, [_batch(truth[p], p.width) for p in n.parents])
        truth[n] = bag(rows)
    return truth


def bag(rows: Batch) -> Rows:
    out: Rows = Counter()
    for r, w in zip(rows.rows(), rows.weights.tolist(), strict=True):
        out[r] += w
    return Counter({r: w for r, w in out.items() if w})


def _batch(rows: Rows, width: int) -> Batch:
    return Batch.from_rows(list(rows), width, list(rows.values()))


def _check_state(engine: Engine, n: Node, truth: Rows) -> None:
    if n.full:
        have = bag(n.op.all_rows(engine, n))
        if have != truth:
            raise InvariantViolation("DELTA-SUM", f"{n}: has {dict(have)}, recomputed {dict(truth)}")
        return
    for cols in n.op.presence(n):
        keys = n.stored.present(cols)
        if not keys.shape[1]:
            continue
        rows, ordinal = n.op.fetch(engine, n, cols, keys, MissMode.STORED)
        recomputed = _by_key(engine, n, cols, truth)
        for key, have in zip(map(tuple, keys.T.tolist()), _apart(rows, ordinal, keys.shape[1]), strict=True):
            expected = recomputed.get(key, Counter())
            if have != expected:
                raise InvariantViolation(
                    "UPDATE-COMPLETE", f"{n} {list(cols)}={key}: has {dict(have)}, recomputed {dict(expected)}")


def _apart(rows: Batch, ordinal: Codes, keys: int) -> list[Rows]:
    """The rows of each key."""
    order = np.argsort(ordinal, kind="stable")
    bounds = np.searchsorted(ordinal[order], np.arange(keys + 1))
    rows = rows.take(order)
    return [bag(rows.take(np.arange(a, b))) for a, b in pairwise(bounds.tolist())]


def _by_key(engine: Engine, n: Node, cols: Columns, truth: Rows) -> dict[tuple[int, ...], Rows]:
    """The recomputed rows by their folded key."""
    raw = np.array(list(truth), np.int64).reshape(len(truth), n.width)[:, list(cols)].T
    folded = folded_keys(engine.symbols, [n.fields[c].type.folds for c in cols], np.ascontiguousarray(raw))
    out: dict[tuple[int, ...], Rows] = {}
    for (row, weight), key in zip(truth.items(), map(tuple, folded.T.tolist()), strict=True):
        out.setdefault(key, Counter())[row] = weight
    return out


def _check_ranges(n: Node, cols: tuple[int, ...], truth: Rows) -> None:
    """RANGE-WHOLE: values in filled intervals are present if a row has them, and are listed. The parents have the
    intervals filled."""
    ranges = n.ranges[cols]
    values = np.unique(np.array([r[cols[0]] for r in truth], np.int64))
    values = values[ranges.covers(values)]
    if not n.full and len(values) and n.stored.missing(cols, values[None, :]).any():
        raise InvariantViolation("RANGE-WHOLE", f"{n} {list(cols)}: {values.tolist()} are in {ranges.intervals()} and "
                                 "not all present")
    for low, high in ranges.intervals():
        inside = values[(values >= low) & (values <= high)]
        if not set(inside.tolist()) <= set(ranges.within(low, high).tolist()):
            raise InvariantViolation("RANGE-WHOLE", f"{n} {list(cols)}: {inside.tolist()} are not all noted")
        if not n.full and (above := uncovered(n, cols, low, high)):
            raise InvariantViolation("HOLE-CLOSED", f"{n} {list(cols)} has {low}..{high} filled, {above[0]} has not")


def _check_holes(engine: Engine, n: Node) -> None:
    for cols in n.op.presence(n):
        keys = n.stored.present(cols)
        if keys.shape[1]:
            for need in n.op.needs(n, cols):
                engine.fetch(n.parents[need.port], need.cols, keys, MissMode.CHECK)
