"""`Groups`: the state of a grouping operator, one row per group with exact accumulators.

Keeps true:
* A group is stored if and only if a present key covers it and it has input rows.  Without GROUP BY, the one group is
  stored even without rows.
* The accumulators of a group include all its input rows.
* Group keys are folded.  A case-insensitive (CI) text column of the key shows the group's least spelling in byte order.
  This spelling is one more aggregate, so it depends only on the group's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noria.core.batch import Batch, Codes
from noria.core.errors import InvariantViolation
from noria.core.limits import NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import Collation
from noria.state.grouping import group_kernels as gk
from noria.state.rows import probe
from noria.state.rows.table import Cold, Columns, Table

_NONE = np.empty(0, np.int64)
_NO_RANKS = np.empty((2, 0), np.int64)
_NO_FOLD = np.zeros(1, np.int64)
_SIDE_ROWS = 4096  # after a derivation from more rows, its arena is freed instead of reused


@dataclass(frozen=True)
class Spec:
    """One aggregate: its kind in `group_kernels` and its input column.

    factor: for AVG, the power of ten of the added scale; for VARIANCE, of the column's scale.  For MIN and MAX of text,
    1 if the collation is CI, 0 if it compares bytes.  For bits, the function in `moment_kernels`.
    """

    kind: int
    column: int = 0
    factor: int = 0


@dataclass(frozen=True)
class Dirty:
    """Groups that must be derived again from all their rows.

    keys: folded.  old: their previous output rows.  had: which of them had an output row.
    """

    keys: Codes
    old: Codes
    had: npt.NDArray[np.bool_]


class Groups:
    """The state of one grouping operator (§3.3).  An output row has the key columns, then the aggregates.

    group: the input columns of the key; empty without GROUP BY.  folds: which of them hold CI text.  The aggregates of
    their spellings are stored after those of `specs`.
    """

    def __init__(self, group: Sequence[int], folds: Sequence[bool], specs: Sequence[Spec], symbols: Symbols,
                 *, full: bool, name: str = ""):
        self.group, self.folds, self.name, self._symbols = tuple(group), tuple(folds), name, symbols
        self.aggregates = len(specs)
        spellings = [Spec(gk.TEXT_MIN, c) for c, f in zip(self.group, self.folds, strict=True) if f]
        self.specs = [*specs, *spellings]
        words = [gk.WORDS.get(s.kind, 3) for s in self.specs]
        self._at = [sum(words[:a]) for a in range(len(words))]
        self._spec_array = np.array([(s.kind, s.column, s.factor, at)
                                     for s, at in zip(self.specs, self._at, strict=True)],
                                    np.int64).reshape(-1, 4)
        self._text = [(a, s) for a, s in enumerate(self.specs) if s.kind >= gk.TEXT_MIN]
        self.key_width = max(len(self.group), 1)  # without GROUP BY the key is the constant 0
        self.always = not self.group
        width = self.key_width + gk.ACC + sum(words)
        self.table = Table(width, [False] * width, None, full=full, identity=self.key_width, name=name)
        self._order = self._output_order()
        self._side: Groups | None = None

    def _output_order(self) -> list[int] | None:
        """The columns of the kernels' output (keys, aggregates, spellings) in the operator's order; None: the same."""
        g = len(self.group)
        if not any(self.folds):
            return None
        spelling = iter(range(g + self.aggregates, g + len(self.specs)))
        return [next(spelling) if f else j for j, f in enumerate(self.folds)] + list(range(g, g + self.aggregates))

    # -------------------------------------------------------------- keys and ranks
    def keys_of(self, batch: Batch) -> Codes:
        """Return the folded group keys of input rows, shape (key width, rows)."""
        if not self.group:
            return np.zeros((1, len(batch)), np.int64)
        return self.fold(batch.columns[list(self.group)])

    def fold(self, keys: Codes) -> Codes:
        if not any(self.folds):
            return np.ascontiguousarray(keys)
        return np.stack([self._symbols.folded(keys[j]) if f else keys[j] for j, f in enumerate(self.folds)])

    def _ranks(self, batch: Batch, current: Codes) -> tuple[Codes, Codes]:
        """Return all text ids that MIN and MAX may compare, sorted, and their ranks by bytes (row 0) and CI (row 1).

        current: the texts that the groups hold now.
        """
        if not self._text:
            return _NONE, _NO_RANKS
        ids = np.unique(np.concatenate([batch.columns[s.column] for _, s in self._text] + [current]))
        ids = ids[ids != NULL_CODE]
        own = self._symbols.sort_keys(ids, Collation.BIN)
        folded = self._symbols.sort_keys(ids, Collation.CI)
        ranks = np.empty((2, len(ids)), np.int64)
        for row, by in enumerate((["own"], ["folded", "own"])):
            keys = [(k, "ascending") for k in by]
            order = pc.sort_indices(pa.table({"own": own, "folded": folded}), sort_keys=keys)
            ranks[row, order.to_numpy().astype(np.int64)] = np.arange(len(ids))
        return ids, ranks

    def _current(self, keys: Codes) -> Codes:
        if not self._text:
            return _NONE
        words = [gk.ACC + self._at[a] for a, _ in self._text]
        return np.concatenate([gk.values_of(self.table.arena, keys, w, _NO_FOLD) for w in words])

    def _shown(self, cols: Codes) -> Codes:
        return cols if self._order is None else cols[self._order]

    def held(self, texts: Sequence[int]) -> Iterator[Codes]:
        """Yield words of the state that include all its text ids.  texts: the output columns of texts."""
        keys = [c for c in texts if c < len(self.group)]
        kept = [self.key_width + gk.ACC + self._at[a] + word
                for a, s in self._text for word in range(gk.WORDS.get(s.kind, 3))]
        return self.table.held([*keys, *kept])

    def fold_for(self, cols: Columns, keys: Codes) -> Codes:
        """Fold keys over some of the key columns.  cols: positions in the key."""
        if not any(self.folds):
            return keys
        return np.stack([self._symbols.folded(k) if self.folds[c] else k for c, k in zip(cols, keys, strict=True)])

    # -------------------------------------------------------------- keys that are present
    @property
    def full(self) -> bool:
        return self.table.full

    def fits(self, indexes: Sequence[Columns]) -> bool:
        return self.table.fits(indexes)

    def fit(self, indexes: Sequence[Columns]) -> None:
        self.table.fit(indexes)

    def missing(self, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
        return self.table.missing(cols, self.fold_for(cols, keys))

    def evict(self, cols: Columns, keys: Codes) -> int:
        return self.table.evict(cols, self.fold_for(cols, keys))

    def present(self, cols: Columns) -> Codes:
        return self.table.present(cols)

    def present_count(self, cols: Columns) -> int:
        return self.table.present_count(cols)

    def coldest(self, cols: Columns, most: int) -> Cold:
        return self.table.coldest(cols, most)

    def shrink(self) -> None:
        self.table.shrink()

    def memory(self) -> int:
        return self.table.memory()

    def __len__(self) -> int:
        return len(self.table)

    @staticmethod
    def pulls_again(spec: Spec) -> bool:
        """True if the removal of a row can make the group dirty: for MIN, MAX and VARIANCE of doubles (rule R15)."""
        return spec.kind >= gk.MIN or spec.kind == gk.FVAR

    def only(self, rows: Batch, groups: Codes) -> Batch:
        """Return the input rows of some groups.  groups: folded keys."""
        i, _ = probe.pairs(np.ascontiguousarray(self.keys_of(rows)), groups)
        return rows.take(i)

    # -------------------------------------------------------------- updates
    def apply(self, delta: Batch) -> tuple[Batch, Dirty | None]:
        """Add a delta.  Return the -old and +new rows of the changed groups, and the dirty groups, if there are any.

        Raises InvariantViolation NO-SPURIOUS if a group loses more rows than it had.
        """
        keys = self.keys_of(delta)
        self.table.reserve(len(delta))
        ids, ranks = self._ranks(delta, self._current(keys))
        out, weights, dkeys, dold, dhad, bad = gk.apply(
            self.table.arena, self._spec_array, len(self.group), self.always, keys, delta.columns, delta.weights,
            ids, ranks, _NO_FOLD)
        if bad:
            raise InvariantViolation("NO-SPURIOUS", f"{self.name}: a group lost more rows than it had in {delta}")
        dirty = Dirty(dkeys, self._shown(dold), dhad) if dkeys.shape[1] else None
        return Batch(np.ascontiguousarray(self._shown(out)), weights), dirty

    def refill(self, dirty: Dirty, rows: Batch) -> Batch:
        """Derive dirty groups again from all their input rows.  Return their -old and +new rows."""
        fresh = self.derive(rows)
        if gk.replace(self.table.arena, fresh[: self.key_width], fresh) or fresh.shape[1] != dirty.keys.shape[1]:
            raise InvariantViolation("FILL-AGREES", f"{self.name}: groups pulled again are not those stored")
        new = self.output(fresh)
        old = dirty.old.compress(dirty.had, axis=1)
        cols = np.ascontiguousarray(np.concatenate([old, new], axis=1))
        return Batch(cols, np.concatenate([np.full(old.shape[1], -1, np.int64), np.ones(new.shape[1], np.int64)]))

    def derive(self, rows: Batch) -> Codes:
        """Compute stored rows from all input rows of their groups, shape (words, groups).  Changes no group here."""
        side, self._side = self._side, None
        if side is None:
            side = Groups(self.group, self.folds, self.specs[: self.aggregates], self._symbols, full=True,
                          name=self.name)
        side.apply(rows)
        derived = side.table.rows().columns
        side.table.clear()
        if len(rows) <= _SIDE_ROWS:
            self._side = side
        return derived

    def fill(self, cols: Columns, keys: Codes, rows: Batch) -> None:
        """Make keys present.  cols: positions in the key.  rows: all input rows of the keys' groups."""
        groups = self.derive(rows)
        self.table.fill(cols, np.ascontiguousarray(self.fold_for(cols, keys)), Batch.of(groups))

    def start(self) -> Batch:
        """Store the one group of an aggregate without GROUP BY, and return its output row before any input."""
        cols = np.zeros((self.table.width, 1), np.int64)
        for a, s in enumerate(self.specs):
            if s.kind >= gk.MIN:
                cols[self.key_width + gk.ACC + self._at[a]] = NULL_CODE
        self.table.apply(Batch.of(cols))
        return Batch.of(self.output(cols))

    # -------------------------------------------------------------- reading
    def output(self, groups: Codes) -> Codes:
        """Return the output columns of stored rows.  groups: in shape (words, groups)."""
        out: Codes = gk.outputs(np.ascontiguousarray(groups), self.key_width, self._spec_array, len(self.group))
        return np.ascontiguousarray(self._shown(out))

    def lookup(self, cols: Columns, keys: Codes, tick: int) -> tuple[Batch, Codes]:
        """Return the output rows of the groups under each key, and for each row the ordinal of its key.

        tick: recorded as the keys' last use.
        """
        groups, ordinal = self.table.lookup(cols, np.ascontiguousarray(self.fold_for(cols, keys)), tick)
        return Batch.of(self.output(groups.columns)), ordinal

    def rows(self) -> Batch:
        return Batch.of(self.output(self.table.rows().columns))

    def part(self, parts: int, low: int, high: int) -> Batch:
        return Batch.of(self.output(self.table.part(parts, low, high).columns))

    def part_of(self, rows: Batch, parts: int) -> Codes:
        g = len(self.group)
        keys = self.fold(rows.columns[:g]) if g else np.zeros((1, len(rows)), np.int64)
        return self.table.part_of(Batch(keys, rows.weights), parts)
