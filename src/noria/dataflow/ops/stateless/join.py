"""Join on column equality, inner or left outer. It stores no rows (section 4.1; rules R8 to R10).

Inner: out = L x R on equal keys; d(out) = dL x R' + L' x dR - dL x dR. A prime is the state after the tick, so
self-joins and diamonds are exact.

Outer: the same for rows that meet the residual condition too. Each left row without a match appears with NULLs.
These rows add (L' where R' has no match) - (L where R had none) to d(out).

A pull reads one side first, the primary, and looks rows up in the other side. A delta of the primary side pulls the
rows of its keys in the other side, which must be complete for them. A delta of the other side reads only stored rows of
the primary side: rows that are not stored belong to no key that is present below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes, concat
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr
from noria.core.limits import NULL_CODE
from noria.core.types import Field
from noria.dataflow.graph.eviction import evict_through
from noria.dataflow.graph.keys import distinct, folded_keys
from noria.dataflow.graph.nodes import (
    Columns,
    GraphRuntime,
    KeyPattern,
    MissMode,
    Node,
    Operator,
    ParentPull,
    RemoteRowsNeeded,
    Untraceable,
    UpstreamReader,
)
from noria.dataflow.graph.partition import Partition, Parts, by_pairs, placed
from noria.dataflow.graph.request_limits import RequestLimits
from noria.state.rows import probe
from noria.state.rows.netting import netted

Rows = Counter[tuple[int, ...]]
FIRST_SLICE = 8  # the first slice of a bounded request: each row may match very many
SLICE_ROWS = 4_096  # the largest slice of a bounded request
PRODUCT_ROWS = 262_144  # target size of a slice's product


class Join(Operator):
    """Output: left columns, then right columns.

    `on`: pairs (left column, right column). Pairs at the positions `null_safe` match NULL with NULL. `residual`:
    a further condition on output rows, of outer joins only.
    """

    def __init__(self, fields: tuple[Field, ...], left_width: int, on: Sequence[tuple[int, int]], outer: bool,
                 null_safe: Sequence[int] = (), residual: Expr | None = None):
        self._fields, self.lw, self.outer = fields, left_width, outer
        self._strict = [i for i in range(len(on)) if i not in null_safe]
        self._residual = None if residual is None else evaluate.predicate(residual)
        self._more = "" if residual is None else f" if {residual}"
        self.keys: tuple[Columns, Columns] = (tuple(a for a, _ in on), tuple(b for _, b in on))
        self._folds = [fields[a].type.folds for a in self.keys[0]]
        self._widths = (left_width, len(fields) - left_width)
        # output columns of each input column; equal key columns of an inner join stand for each other
        self._out: tuple[dict[int, list[int]], dict[int, list[int]]] = (
            {c: [c] for c in range(left_width)}, {c: [left_width + c] for c in range(self._widths[1])})
        if not outer:
            for a, b in on:
                self._out[0][a].append(left_width + b)
                self._out[1][b].append(a)
        self._in = tuple({o: c for c, outs in side.items() for o in outs} for side in self._out)
        self._needs: dict[Columns, list[ParentPull]] = {}  # by pulled columns: every layout needs them

    def describe(self) -> str:
        pairs = " and ".join(f"#{a} {'=' if i in self._strict else '<=>'} #{self.lw + b}"
                             for i, (a, b) in enumerate(zip(*self.keys, strict=True)))
        return f"{'left ' if self.outer else ''}join on {pairs}{self._more}"

    # -------------------------------------------------------------- planning
    def primary(self, node: Node, cols: Columns) -> tuple[int, Columns, tuple[int, ...]]:
        """The side that a pull by cols reads first, its columns, and which of cols they answer. The other columns
        are checked on the result: such a key is "straddled"."""
        cover = [tuple(i for i, c in enumerate(cols) if c in self._in[side]) for side in (0, 1)]
        side = 0 if self.outer or len(cover[0]) >= len(cover[1]) else 1
        if not cover[side]:
            raise Untraceable(node, "the key comes from the right of a left join alone" if self.outer else "no key")
        return side, tuple(self._in[side][cols[i]] for i in cover[side]), cover[side]

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        if cols not in self._needs:
            side, mine, _ = self.primary(node, cols)
            own, other = self.keys[side], self.keys[1 - side]
            self._needs[cols] = [ParentPull(side, mine, side, find=own), ParentPull(1 - side, other, side)]
        return self._needs[cols]

    def also_from(self, node: Node, cols: Columns) -> list[ParentPull]:
        """The other side of an inner join, if these columns are its keys."""
        side, mine, covered = self.primary(node, cols)
        own, other = self.keys[side], self.keys[1 - side]
        if self.outer or len(covered) < len(cols) or not set(mine) <= set(own):
            return []
        return [ParentPull(1 - side, tuple(other[own.index(c)] for c in mine), 1 - side)]

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        pairs = list(zip(*self.keys, strict=True))
        if any(self._fields[a].type.folds != self._fields[self.lw + b].type.folds for a, b in pairs):
            pairs = []  # equal rows would not hash alike
        left, right = by_pairs(inputs[0], inputs[1], pairs)
        mine = inputs[0] if left is None else (left,)
        other = inputs[1] if right is None else (right,)
        return Partition((left, right), self._parts(mine, other))

    def _parts(self, left: Parts, right: Parts) -> Parts:
        """The partition of joined rows if equal rows of both sides are at one worker."""
        if self.outer:
            return left
        return tuple(dict.fromkeys((*left, *placed(right, {c: self.lw + c for c in range(self._widths[1])}))))

    def lookups(self) -> list[Columns | None]:
        return list(self.keys)

    def drivers(self) -> tuple[int, ...]:
        return (0,) if self.outer else (0, 1)

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        assert primary is not None
        if port == primary:
            return [self._widen(port, p)]
        own, other = self.keys[port], self.keys[primary]
        known = [(p.cols.index(c), other[j]) for j, c in enumerate(own) if c in p.cols]
        keys = np.ascontiguousarray(p.values[[i for i, _ in known]])
        if len(known) < len(own):  # no index finds rows by a part of the key: evict all that agree with the part
            ordinal = np.arange(keys.shape[1])
            wide = self._widen(primary, KeyPattern(tuple(c for _, c in known), keys, p.source))
        else:
            rows, ordinal = engine.fetch(node.parents[primary], tuple(c for _, c in known), keys, MissMode.STORED)
            if not len(rows):
                return []
            wide = self._widen(primary, KeyPattern(tuple(range(rows.width)), rows.columns, p.source[ordinal]))
        if self.outer:  # the NULL-extended row changes too: the right side's columns are uncertain (R9)
            return [wide]
        mine = self._widen(port, p)
        extra = [i for i, c in enumerate(mine.cols) if c not in wide.cols]
        values = np.concatenate([wide.values, mine.values[extra][:, ordinal]])
        return [KeyPattern(wide.cols + tuple(mine.cols[i] for i in extra), values, wide.source)]

    def _widen(self, side: int, p: KeyPattern) -> KeyPattern:
        outs = [(o, i) for i, c in enumerate(p.cols) for o in self._out[side][c]]
        return KeyPattern(tuple(o for o, _ in outs), p.values[[i for _, i in outs]], p.source)

    # -------------------------------------------------------------- ticks
    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        if engine.exchanges is None:
            return self._tick(engine, node, deltas[0], deltas[1])
        return concat(list(self._apart(engine, node, deltas[0], deltas[1])), node.width)

    def _apart(self, engine: GraphRuntime, node: Node, left: Batch | None, right: Batch | None) -> Iterator[Batch]:
        """Run the tick. If it would look up rows at other workers, split the join keys in halves until only those
        keys are left, and run `_evicting` for them."""
        try:
            yield self._tick(engine, node, left, right)
            return
        except RemoteRowsNeeded:
            pass
        sides = [rows if rows is not None and len(rows) else None for rows in (left, right)]
        keys = [None if rows is None else self._keys(engine, i, rows) for i, rows in enumerate(sides)]
        every = distinct(np.concatenate([k for k in keys if k is not None], axis=1))
        if every.shape[1] == 1:
            yield self._evicting(engine, node, sides[0], sides[1])
            return
        middle = every.shape[1] // 2
        for some in (every[:, :middle], every[:, middle:]):
            part = [None if rows is None or k is None else rows.take(probe.pairs(k, np.ascontiguousarray(some))[0])
                    for rows, k in zip(sides, keys, strict=True)]
            yield from self._apart(engine, node, part[0], part[1])

    def _evicting(self, engine: GraphRuntime, node: Node, left: Batch | None, right: Batch | None) -> Batch:
        """The tick for one join key whose rows are at other workers: evict the keys below that depend on it (rule
        R14). For all other keys the stored rows suffice."""
        if left is not None and (self.outer or 0 in node.primaries):
            evict_through(engine, node, 0, left)
        if self.outer:
            return Batch.empty(node.width)
        if right is not None and 1 in node.primaries:
            evict_through(engine, node, 1, right)
        return self._tick(engine, node, left, right, MissMode.STORED)

    def _tick(self, engine: GraphRuntime, node: Node, left: Batch | None, right: Batch | None,
              mode: MissMode | None = None
              ) -> Batch:
        out: list[Batch] = []
        if self.outer:
            return self._tick_outer(engine, node, left, right)
        if left is not None:
            out.append(self._lookup(engine, node, 0, left, mode)[0])
        if right is not None:
            out.append(self._lookup(engine, node, 1, right, mode)[0])
        if left is not None and right is not None:
            out.append(self._both(engine, left, right).negated())
            return netted(concat(out, node.width))  # most of it cancels; a chain of joins would cube it
        return concat(out, node.width)

    def _mode(self, node: Node, side: int) -> MissMode:
        """The mode in which a delta of `side` reads the other side."""
        return MissMode.FILL if node.full_below or side in node.primaries else MissMode.STORED

    def _lookup(self, engine: UpstreamReader, node: Node, side: int, delta: Batch, mode: MissMode | None = None
                ) -> tuple[Batch, Codes]:
        """The delta joined with the present rows of the other side, and for each output row its row of the delta."""
        if engine.limits is not None and len(delta) > FIRST_SLICE:
            return self._in_slices(engine, node, side, delta, mode, engine.limits)
        return self._at_once(engine, node, side, delta, mode)[:2]

    def _at_once(self, engine: UpstreamReader, node: Node, side: int, delta: Batch, mode: MissMode | None
                 ) -> tuple[Batch, Codes, int]:
        """`_lookup`, and the number of pairs before the residual condition."""
        keys = delta.columns[list(self.keys[side])]
        null, some = self._null(keys)
        at = np.flatnonzero(~null) if some else None
        if at is not None:
            keys = np.ascontiguousarray(keys[:, at])
        other = 1 - side
        rows, ordinal = engine.fetch(node.parents[other], self.keys[other], keys, mode or self._mode(node, side))
        mine = ordinal if at is None else at[ordinal]
        if engine.limits is not None:
            engine.limits.product(len(mine), node.width)
        out = self._beside(side, delta, mine, rows, np.arange(len(rows)))
        return *self._matching(engine, out, mine), len(mine)

    def _in_slices(self, engine: UpstreamReader, node: Node, side: int, delta: Batch, mode: MissMode | None,
                   limits: RequestLimits
                   ) -> tuple[Batch, Codes]:
        """`_lookup` of many rows in slices, so that the limits of the request are checked before memory is used."""
        parts: list[Batch] = []
        whose: list[Codes] = []
        total = 0
        for start, _, out, mine in self._slices(engine, node, side, delta, mode):
            parts.append(out)
            whose.append(mine + start)
            total += len(out)
            limits.product(total, node.width)
        return concat(parts, node.width), np.concatenate(whose)

    def _slices(self, engine: UpstreamReader, node: Node, side: int, delta: Batch, mode: MissMode | None
                ) -> Iterator[tuple[int, Batch, Batch, Codes]]:
        """Yield for each slice of a delta its start, its rows and its product. Each slice is sized so that its
        product has about PRODUCT_ROWS rows."""
        start, step = 0, FIRST_SLICE
        while start < len(delta):
            part = _rows_from(delta, start, step)
            out, mine, met = self._at_once(engine, node, side, part, mode)
            yield start, part, out, mine
            start += len(part)
            step = max(1, min(8 * step, SLICE_ROWS, PRODUCT_ROWS * len(part) // max(1, met)))

    def _matching(self, engine: UpstreamReader, rows: Batch, mine: Codes) -> tuple[Batch, Codes]:
        """The rows that meet the residual condition."""
        if self._residual is None:
            return rows, mine
        met = self._residual(rows, engine.symbols)
        return rows.where(met), mine[met]

    def _null(self, keys: Codes) -> tuple[npt.NDArray[np.bool_], bool]:
        """Which keys match no row because of a NULL, and whether any is so."""
        if len(self._strict) < len(keys):
            keys = np.ascontiguousarray(keys[self._strict])
        null, some = probe.has_null(keys)
        return null, bool(some)

    def _beside(self, side: int, a: Batch, ai: Codes, b: Batch, bi: Codes) -> Batch:
        """Rows of a (the input `side`) combined with rows of b, in output order."""
        if side == 0:
            return Batch(*probe.combine(a.columns, ai, a.weights, b.columns, bi, b.weights))
        return Batch(*probe.combine(b.columns, bi, b.weights, a.columns, ai, a.weights))

    def _keys(self, engine: UpstreamReader, side: int, rows: Batch) -> Codes:
        return np.ascontiguousarray(
            folded_keys(engine.symbols, self._folds, rows.columns[list(self.keys[side])]))

    def _both(self, engine: UpstreamReader, left: Batch, right: Batch) -> Batch:
        lk, rk = self._keys(engine, 0, left), self._keys(engine, 1, right)
        li, ri = probe.pairs(lk, rk)
        if len(li):
            ok = ~self._null(np.ascontiguousarray(lk[:, li]))[0]
            li, ri = li[ok], ri[ok]
        return self._matching(engine, self._beside(0, left, li, right, ri), li)[0]

    def _tick_outer(self, engine: UpstreamReader, node: Node, left: Batch | None, right: Batch | None) -> Batch:
        out: list[Batch] = []
        if left is not None:
            matched, mine = self._lookup(engine, node, 0, left, MissMode.FILL)
            out += [matched, self._unmatched(left, mine)]
        if right is not None:
            out += self._tick_right(engine, node, left, right)
        return concat(out, node.width)

    def _unmatched(self, left: Batch, mine: Codes) -> Batch:
        """Left rows without a match, with NULLs on the right."""
        alone = np.ones(len(left), np.bool_)
        alone[mine] = False
        rows = left.where(alone)
        nulls = np.full((self._widths[1], len(rows)), NULL_CODE, np.int64)
        return Batch(np.concatenate([rows.columns, nulls]), rows.weights)

    def _tick_right(self, engine: UpstreamReader, node: Node, left: Batch | None, right: Batch) -> list[Batch]:
        """The part of an outer join's d(out) that dR adds to dL x R'. The latter includes the NULL rows of dL,
        computed with R'."""
        stored, _ = self._lookup(engine, node, 1, right, MissMode.FILL if node.full_below else MissMode.STORED)
        out = [stored]
        if left is not None:
            out.append(self._both(engine, left, right).negated())
        keys = self._keys(engine, 1, right)
        keys = distinct(np.ascontiguousarray(keys[:, ~self._null(keys)[0]]))
        now, whose = engine.fetch(node.parents[0], self.keys[0], keys,
                                  MissMode.FILL if node.full_below else MissMode.STORED)
        before = now if left is None else self._without(engine, now, left, keys)
        affected = np.union1d(np.unique(whose), self._rows_of(engine, keys, before))
        if not len(affected):
            return out
        keys = np.ascontiguousarray(keys[:, affected])
        rows, _ = engine.fetch(node.parents[1], self.keys[1], keys, MissMode.FILL)
        # dL's own NULL rows were computed with R' alone, so only L before the tick is compared with R and R'
        before = before.take(probe.pairs(self._keys(engine, 0, before), keys)[0])
        count = self._matches(engine, before, rows, keys)
        was = count - self._matches(engine, before, right, keys)
        for chosen, sign in (((was != 0) & (count == 0), 1), ((was == 0) & (count != 0), -1)):
            part = before.where(chosen)
            nulls = np.full((self._widths[1], len(part)), NULL_CODE, np.int64)
            out.append(Batch(np.concatenate([part.columns, nulls]), sign * part.weights))
        return out

    def _matches(self, engine: UpstreamReader, left: Batch, right: Batch, keys: Codes) -> Codes:
        """The number of right rows that each left row matches. Each left row has one of these keys."""
        lk, rk = self._keys(engine, 0, left), self._keys(engine, 1, right)
        if self._residual is None:  # a sum for each key, not for each pair of rows
            ri, key = probe.pairs(rk, keys)
            counts: Codes = np.bincount(key, right.weights[ri], keys.shape[1]).astype(np.int64)
            of_rows: Codes = counts[probe.pairs(lk, keys)[1]]
            return of_rows
        li, ri = probe.pairs(lk, rk)
        pairs, li = self._matching(engine, self._beside(0, Batch.of(left.columns), li, right, ri), li)
        return np.bincount(li, pairs.weights, len(left)).astype(np.int64)

    def _without(self, engine: UpstreamReader, now: Batch, delta: Batch, keys: Codes) -> Batch:
        """Left rows of the keys before the tick: the present rows minus the delta's rows of these keys."""
        i, _ = probe.pairs(self._keys(engine, 0, delta), keys)
        return concat([now, delta.take(i).negated()], now.width)

    def _rows_of(self, engine: UpstreamReader, keys: Codes, rows: Batch) -> Codes:
        _, k = probe.pairs(self._keys(engine, 0, rows), keys)
        return np.unique(k)

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        out: Rows = Counter()
        right: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
        rk = self._keys(engine, 1, inputs[1]).T.tolist()
        for r, w, k in zip(inputs[1].rows(), inputs[1].weights.tolist(), rk, strict=True):
            right.setdefault(tuple(k), []).append((r, w))
        for r, w, k in zip(inputs[0].rows(), inputs[0].weights.tolist(),
                           self._keys(engine, 0, inputs[0]).T.tolist(), strict=True):
            met = [] if any(k[i] == NULL_CODE for i in self._strict) else right.get(tuple(k), [])
            if self._residual is not None and met:
                rows = Batch.from_rows([r + other for other, _ in met], node.width)
                met = [m for m, ok in zip(met, self._residual(rows, engine.symbols).tolist(), strict=True) if ok]
            for other, v in met:
                out[r + other] += w * v
            if self.outer and not met:
                out[r + (NULL_CODE,) * self._widths[1]] += w
        return Batch.from_rows(list(out), node.width, list(out.values()))

    # -------------------------------------------------------------- pulls
    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        if not cols:
            raise Untraceable(node, "a join is not read without a key")
        side, mine, covered = self.primary(node, cols)
        rows, ordinal = engine.fetch(node.parents[side], mine, np.ascontiguousarray(keys[list(covered)]), mode)
        out, whose = self._lookup(engine, node, side, rows, mode)
        if self.outer:
            alone = np.ones(len(rows), np.bool_)
            alone[whose] = False
            out = concat([out, self._unmatched(rows, whose)], node.width)
            whose = np.concatenate([whose, np.flatnonzero(alone)])
        ordinal = ordinal[whose]
        if len(covered) < len(cols):
            out, ordinal = self._agreeing(engine, node, cols, keys, out, ordinal)
        return out, ordinal

    def _agreeing(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, out: Batch, ordinal: Codes
                  ) -> tuple[Batch, Codes]:
        folds = [node.fields[c].type.folds for c in cols]
        have = folded_keys(engine.symbols, folds, out.columns[list(cols)])
        requested = folded_keys(engine.symbols, folds, keys)[:, ordinal]
        ok = (have == requested).all(axis=0)
        return out.where(ok), ordinal[ok]

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        side = 0 if self.outer else engine.driver(node)
        for rows in engine.stream(node.parents[side]):
            for _, part, out, mine in self._slices(engine, node, side, rows, MissMode.FILL):
                yield out
                if self.outer:
                    yield self._unmatched(part, mine)


def _rows_from(rows: Batch, start: int, count: int) -> Batch:
    if start == 0 and count >= len(rows):
        return rows
    return Batch(np.ascontiguousarray(rows.columns[:, start:start + count]), rows.weights[start:start + count])
