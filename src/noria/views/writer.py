"""Writes views to shared memory (design/decisions.md, 5; the paper's readers, section 6.2).

`ViewDirectory` makes `WritableView`s.  Each has memory as in `views/layout.py` that any process of the host may map:
a region of a file that small views share, or files of its own (`views/pool.py`).  A small JSON file, the view's
record, names that memory and describes the columns (`views/files.py`).  Without a path, views are in anonymous memory.

Keeps true: a view's newest record names the memory that serves.  Memory is made before anything is changed, so a full
file system leaves a view as it was.  The memory of earlier epochs is marked DEAD before the first publish of this one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import InvariantViolation, SqlError, not_supported
from noria.core.limits import ERROR_CODE
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.core.values import decode
from noria.feeds.writer import FeedDirectory, FeedWriter
from noria.state.memory import atomics
from noria.views import files, row_entries
from noria.views import write_kernels as kernels
from noria.views.layout import (
    DEAD,
    EPOCH,
    FOLDS,
    FORMAT,
    FREE_WORDS,
    FULL,
    HELD,
    INDEX,
    INDEXED,
    INDEXES,
    KEY_COLUMNS,
    KEYS,
    LEAST_SLOTS,
    LIVE,
    MAGIC,
    MAX_KEY,
    MOST_USED,
    MOVED,
    READY,
    ROOM,
    SERVING,
    SLAB,
    STATE_BITS,
    TICK,
    TOP,
    USED,
    VERSION,
    WIDTH,
)
from noria.views.pool import Pools, ViewMemory, slots_of
from noria.views.slab_kernels import (
    BAD_ROW,
    DONE,
    LISTS,
    MERGE,
    MERGE_WORDS,
    NEED,
    NEGATIVE,
    PASSED_ALL,
    PER_ROW,
    PRESENT,
    SLOTS_SHORT,
    WORDS_SHORT,
)

_FIRST_WORDS = 2**11  # words of a new slab
_STEP_WORDS = 2**20  # words of a larger index that are backed at once: some milliseconds
_SHRINK_WORDS = 2**16  # smaller slabs are not compacted
_SHRINK_SLOTS = 2**10  # nor are smaller indexes
_EXPECT_ROWS = 10_000  # fewer rows are copied in less than a millisecond if memory must grow
_NO_FOLD = np.zeros(1, np.int64)


class _Scratch:
    """The kernels' scratch memory, one for all views of a worker."""

    def __init__(self) -> None:
        self.rows = 0
        self.words = np.empty(0, np.int64)
        self.reserve(64)

    def reserve(self, rows: int) -> None:
        self.rows = max(rows, 2 * self.rows)
        self.words = np.empty(LISTS + PER_ROW * self.rows, np.int64)


class WritableView:
    """One view in memory; implements `dataflow.graph.protocols.ViewState`."""

    def __init__(self, directory: ViewDirectory, name: str, fields: Sequence[Field], key: tuple[int, ...],
                 full: bool, place: files.ViewFiles | None):
        self.name, self.full = name, full
        self._directory, self._scratch, self._fields, self._place = directory, directory.scratch, fields, place
        self._pools, self._symbols, self._key = directory.pools, directory.symbols, key
        self._folds = any(fields[k].type.folds for k in key)
        self._keyless, self._by_row = full and not key, False
        self._cursor, self._generation, self._recorded, self._dropped = 0, 0, 0, False
        self._retired_words = 0  # words of indexes that are no longer in use
        memory = self._allocate(LEAST_SLOTS, _FIRST_WORDS)
        words = memory.words
        words[[MAGIC, TICK, EPOCH, WIDTH, KEYS, FULL, READY, VERSION]] = (
            FORMAT, 0, directory.epoch, len(fields), len(key), int(full), int(not full), self._pools.version)
        words[[LIVE, USED, FREE_WORDS]] = 0
        words[KEY_COLUMNS:KEY_COLUMNS + len(key)] = key
        words[FOLDS:FOLDS + len(key)] = [fields[k].type.folds for k in key]
        self._serve(memory)

    # -------------------------------------------------------------- memory
    def _allocate(self, slots: int, slab: int) -> ViewMemory:
        """Allocate memory with at least `slots` slots and `slab` words; no reader knows it yet."""
        paths = None if self._place is None else self._place.paths(self._generation)
        memory = self._pools.allocate(slots, slab, paths, self.full)
        start = INDEX + memory.slots
        memory.words[[SLAB, TOP, ROOM, MOST_USED]] = start, start, memory.room, _most_used(memory)
        kernels.set_index(memory.words, memory.slots.bit_length() - 1)
        return memory

    def _serve(self, memory: ViewMemory) -> None:
        """Publish the memory to readers.  Raises SqlError if there is no space for the record."""
        serves = self._pools.number() << STATE_BITS | SERVING
        kernels.set_state(memory.words, serves)
        spot = memory.spot(serves)
        if self._place is not None and spot is not None:
            try:
                self._place.record(self._generation, spot)
            except BaseException:
                kernels.set_state(memory.words, DEAD)
                memory.release()
                raise
        self._recorded, self._land, self._words, self._stamps = self._generation, memory, memory.words, memory.stamps
        self._serves = serves

    def _move(self, slots: int, spare: int) -> None:
        """Move the view to fresh, compact memory.  Readers of the old memory see that it is MOVED."""
        words, stamps = self._words, self._stamps
        self._generation += 1
        fresh = self._allocate(slots, int(kernels.copied_words(words)) + spare)
        kept = [MAGIC, TICK, READY, EPOCH, WIDTH, KEYS, FULL, VERSION]
        fresh.words[kept] = words[kept]
        fresh.words[[LIVE, USED, FREE_WORDS]] = 0
        fresh.words[KEY_COLUMNS:KEY_COLUMNS + 2 * MAX_KEY] = words[KEY_COLUMNS:KEY_COLUMNS + 2 * MAX_KEY]
        kernels.copy(words, stamps, fresh.words, fresh.stamps)
        self._replace(fresh)

    @property
    def _slots(self) -> int:
        """The number of slots of the newest index."""
        indexed = int(self._words[INDEXED])
        return 1 << (indexed >> 1) + (indexed & 1)

    def _grow(self, need: int) -> bool:
        """Make room for `need` keys by a larger index beside the current one, to which keys move as rows arrive.

        Returns False if the view must move.  Raises SqlError if there is no space; then the view is unchanged.
        """
        words, slots = self._words, self._slots
        if int(words[INDEXED]) & 1:  # a batch of many rows: no more keys are left to move than it has rows
            kernels.pass_all(words, self._stamps)
            self._release_old_index()
            return True
        memory, top = self._land, int(words[TOP])
        if not memory.grows or not slots // 4 <= need <= slots:  # mostly tombstones, or too many new keys
            return False
        step, stamps = max(_STEP_WORDS, slots // 4), 4 * slots - memory.slots
        backed = min(memory.room + step, top + 2 * slots), min(memory.stamped + step, stamps)
        try:
            if not (memory.back(backed[0]) and memory.back_stamps(backed[1])):
                return False
        except SqlError:
            if words[MOST_USED] >= 7 * slots // 10:
                raise
            words[MOST_USED] = 7 * slots // 10  # the current index suffices a little longer
            return True
        words[ROOM] = memory.room
        if memory.room < top + 2 * slots or memory.stamped < stamps:
            words[MOST_USED] += slots // 64  # back the rest later: the system is slow to back much memory at once
        else:
            kernels.begin_growth(words)
        return True

    def _release_old_index(self) -> None:
        """Release the smaller index after all keys have moved to the larger one."""
        memory, slots = self._land, self._slots // 2
        at = int(self._words[INDEXES + slots.bit_length() - 1])
        memory.release_range(at, slots, slots - memory.slots, slots)
        self._retired_words += slots

    def _replace(self, fresh: ViewMemory) -> None:
        """Redirect readers to memory with the same rows, and release the old memory."""
        old, recorded = self._land, self._recorded
        self._serve(fresh)
        kernels.set_state(old.words, MOVED)
        if self._place is not None:
            self._place.withdraw(recorded)
        old.release()
        self._cursor = self._retired_words = 0

    def expect(self, rows: int, keys: int) -> None:
        if rows <= _EXPECT_ROWS:
            return
        if self._keyless and not self._by_row:
            self._split(rows)
        elif _slots_for(keys) > self._slots:
            self._move(_slots_for(keys), _FIRST_WORDS)

    def _split(self, expected: int = 0) -> None:
        """Split the one block into row entries (`views.row_entries`).  Raises SqlError if there is no space; then
        the view is unchanged."""
        rows, width, words = self.rows(np.empty((0, 1), np.int64))[0], len(self._fields), self._words
        self._generation += 1
        fresh = self._allocate(_slots_for(max(len(rows), expected)),
                               int(row_entries.words_of(width, 2 * len(rows))) + _FIRST_WORDS)
        kept = [MAGIC, TICK, READY, EPOCH, FULL, VERSION]
        fresh.words[kept] = words[kept]
        fresh.words[[WIDTH, KEYS, LIVE, USED, FREE_WORDS, KEY_COLUMNS, FOLDS]] = width + 1, 1, 0, 0, 0, width, 0
        if len(rows) > self._scratch.rows:
            self._scratch.reserve(len(rows))
        code = kernels.apply(fresh.words, fresh.stamps, self._scratch.words, row_entries.with_hashes(rows.columns),
                             rows.weights, _NO_FOLD)
        assert code == DONE, f"view {self.name}: {len(rows)} rows do not fit into memory made for them ({code})"
        self._replace(fresh)
        self._by_row = True

    def _make_room(self, code: int) -> None:
        """Make the room that a kernel needs.  Raises SqlError if there is no space; then the view is unchanged."""
        need = int(self._scratch.words[NEED])
        if code == SLOTS_SHORT:
            if not self._grow(need):
                self._move(_slots_for(need), _FIRST_WORDS)
        elif self._land.back(need):
            self._words[ROOM] = self._land.room
        else:
            self._move(self._slots, need)

    def _shrink(self) -> None:
        """Compact the view if more than half of the slab is free, or the index has four times the slots that it needs.
        Does nothing if there is no space for a copy."""
        words = self._words
        slab, slots = int(words[TOP]) - int(words[SLAB]) - self._retired_words, self._slots
        needed = _slots_for(int(words[LIVE]))
        if slots >= max(4 * needed, _SHRINK_SLOTS):
            needed = slots_of(needed, int(kernels.copied_words(words)) + _FIRST_WORDS)
        if (slab > _SHRINK_WORDS and 2 * int(words[FREE_WORDS]) > slab) or slots >= max(4 * needed, _SHRINK_SLOTS):
            try:
                self._move(needed, _FIRST_WORDS)
            except SqlError:
                return  # later fills will use the free space

    def memory(self) -> int:
        words = self._words
        stamps = 0 if self.full else self._slots if not int(words[INDEXED]) & 1 else 3 * self._slots // 2
        return 8 * (int(words[TOP]) - self._retired_words - int(words[FREE_WORDS]) + stamps)

    def held(self) -> Iterator[Codes]:
        """All text ids of rows and keys, as arrays."""
        for c, f in enumerate(self._fields):
            if f.type.is_text:
                yield kernels.column(self._words, c)
        if any(self._fields[k].type.is_text for k in self._key):
            yield from self.present()

    def __len__(self) -> int:
        """The number of distinct rows."""
        return int(self._words[HELD])

    # -------------------------------------------------------------- changes
    def apply(self, delta: Batch) -> None:
        columns, weights = delta.columns, delta.weights
        if len(weights) > self._scratch.rows:
            self._scratch.reserve(len(weights))
        if not self._directory.taken_over:
            self._directory.take_over()
        if not (columns.flags.carray and weights.flags.carray):
            columns, weights = np.array(columns, np.int64, order="C"), np.array(weights, np.int64)
        if self._keyless and not self._by_row and self._is_large():
            with suppress(SqlError):  # no space for a copy: the view stays one block
                self._split()
        if self._by_row:
            columns = row_entries.with_hashes(columns)
        fold = self._symbols.fold_table if self._folds else _NO_FOLD
        while code := kernels.apply(self._words, self._stamps, self._scratch.words, columns, weights, fold):
            self._answer(code, "apply", None)

    def _is_large(self) -> bool:
        return int(self._words[TOP]) - int(self._words[SLAB]) > row_entries.MOST_BLOCK_WORDS

    def fill(self, keys: Codes, rows: Batch) -> None:
        most = max(keys.shape[1], len(rows))
        if most > self._scratch.rows:
            self._scratch.reserve(most)
        if not self._directory.taken_over:
            self._directory.take_over()
        fold, keys = self._fold(), _own(keys)
        columns, weights = _own(rows.columns), _own(rows.weights)
        while code := kernels.fill(self._words, self._stamps, self._scratch.words, keys, columns, weights, fold):
            self._answer(code, "fill", keys)

    def _answer(self, code: int, what: str, keys: Codes | None) -> None:
        """Do what a kernel's code requests; raises InvariantViolation for a violation."""
        if code in (SLOTS_SHORT, WORDS_SHORT):
            self._make_room(code)
            return
        if code == PASSED_ALL:
            self._release_old_index()
            return
        scratch = self._scratch.words
        if code == NEGATIVE:
            row = self._shown(scratch[MERGE:MERGE + min(len(self._fields), MERGE_WORDS)].tolist())
            raise InvariantViolation("NO-SPURIOUS", f"view {self.name}: {what} gives row {row} a negative weight")
        at = int(scratch[BAD_ROW])
        if code == PRESENT:
            assert keys is not None
            raise InvariantViolation("FILL-AGREES", f"view {self.name}: fill of key {keys[:, at].tolist()}, which is "
                                     "present or listed twice")
        raise InvariantViolation("NO-SPURIOUS", f"view {self.name}: row {at} of a fill is of no key that is filled")

    def _shown(self, codes: list[int]) -> tuple[object, ...]:
        """The row for an error message; of a very wide row only the first columns."""
        return tuple("(error)" if code == ERROR_CODE else decode(code, f.type, self._symbols)
                     for code, f in zip(codes, self._fields, strict=False))

    def evict(self, keys: Codes) -> int:
        if self.full:
            raise ValueError(f"view {self.name} is full: its keys cannot be made missing")
        freed = 8 * int(kernels.evict(self._words, self._scratch.words, _own(keys), self._fold()))
        if freed:
            self._shrink()
        return freed

    # -------------------------------------------------------------- looking
    def _fold(self) -> Codes:
        return self._symbols.fold_table if self._folds else _NO_FOLD

    def missing(self, keys: Codes) -> npt.NDArray[np.bool_]:
        if self.full:
            return np.zeros(keys.shape[1], np.bool_)
        out: npt.NDArray[np.bool_] = kernels.missing(self._words, self._scratch.words, _own(keys), self._fold())
        return out

    def rows(self, keys: Codes) -> tuple[Batch, Codes]:
        times = keys.shape[1]
        if self._by_row:
            keys = kernels.sample(self._words, self._stamps, 0, 2**62)[0]
        columns, weights, ordinal = kernels.rows(
            self._words, self._stamps, self._scratch.words, _own(keys), self._fold())
        if not self._by_row:
            return Batch(columns, weights), ordinal
        n, columns = len(weights), columns[:-1]
        return (Batch(np.tile(columns, times), np.tile(weights, times)), np.repeat(np.arange(times), n))

    def present(self) -> Codes:
        if self._by_row:
            return np.empty((0, min(1, int(self._words[LIVE]))), np.int64)
        keys: Codes = kernels.sample(self._words, self._stamps, 0, 2**62)[0]
        return keys

    def present_count(self) -> int:
        return int(self._words[LIVE])

    def coldest(self, keys: int) -> tuple[Codes, Codes, Codes]:
        """The coldest quarter of a sample, as (keys, stamps, bytes).  Each call samples the slots after the last's."""
        sampled, stamps, sizes, self._cursor = kernels.sample(self._words, self._stamps, self._cursor, 4 * keys)
        coldest = np.argsort(stamps, kind="stable")[:keys]
        return np.ascontiguousarray(sampled[:, coldest]), stamps[coldest], sizes[coldest]

    # -------------------------------------------------------------- ticks, life
    def begin_tick(self, tick: int) -> None:
        if not self._directory.taken_over:
            self._directory.take_over()
        kernels.set_tick(self._words, 2 * tick - 1)

    def end_tick(self, tick: int) -> None:
        kernels.set_tick(self._words, 2 * tick)

    def activate(self) -> None:
        """Let readers use a full view, which now has all its rows."""
        if not self._directory.taken_over:
            self._directory.take_over()
        atomics.store(self._words, READY, 1)

    def rename(self, name: str) -> None:
        spot = self._land.spot(self._serves)
        if self._place is not None and spot is not None:
            old, self._place = self._place, self._place.renamed(name)
            self._place.make_folder()
            self._place.record(self._recorded, spot)
            old.withdraw(self._recorded)
        self.name = name

    def drop(self) -> None:
        if not self._dropped:
            self._dropped = True
            kernels.set_state(self._words, DEAD)
            if self._place is not None:
                self._place.withdraw(self._recorded)
            self._land.release()
            if self._place is not None:
                self._place.remove_folder()


class ViewDirectory:
    """Makes the views of one writer; implements `dataflow.graph.protocols.ViewFactory`.  `path` None: anonymous memory,
    for this process alone."""

    def __init__(self, path: str | None, symbols: Symbols, epoch: int = 1, feeds: FeedDirectory | None = None):
        self.path, self.symbols, self.epoch, self._feeds = path, symbols, epoch, feeds
        self.scratch = _Scratch()
        self.taken_over = path is None
        first = 1 if path is None else files.creations(path, epoch) + 1
        self._first = files.stem(epoch, first)
        self._numbers = itertools.count(first)
        self.pools = Pools(path, epoch, self._numbers)

    def create(self, name: str, fields: Sequence[Field], key: tuple[int, ...], visible: int, full: bool,
               definition: int = 0) -> WritableView:
        if len(key) > MAX_KEY:
            raise ValueError(f"view {name} has {len(key)} key columns; at most {MAX_KEY}")
        if self.path is None:
            return WritableView(self, name, fields, key, full, None)
        symbols = getattr(self.symbols, "path", None)
        relative = symbols and os.path.relpath(symbols, self.path)
        about = files.ViewDescriptor(name, tuple(fields), key, visible, full, relative, definition)
        place = files.ViewFiles(self.path, about, files.stem(self.epoch, next(self._numbers)))
        place.make_folder()
        try:
            return WritableView(self, name, fields, key, full, place)
        except SqlError:
            place.remove_folder()
            raise

    def feed(self, name: str, fields: Sequence[Field]) -> FeedWriter:
        if self._feeds is None:
            raise not_supported("a feed", "this worker has no place for files of feeds")
        return self._feeds.create(name, fields)

    def tidy(self) -> bool:
        return self._feeds is not None and self._feeds.tidy()

    def take_over(self) -> None:
        """Mark the memory of earlier writers DEAD and delete it; called before the first publish."""
        before, self.taken_over = self.taken_over, True
        if self.path is not None and not before:
            files.bury(self.path, self._first)
            remove = getattr(self.symbols, "remove_predecessors", None)
            if remove is not None:
                remove()


def _most_used(memory: ViewMemory) -> int:
    """The number of used slots beyond which a larger index is needed: fewer if keys move to it in steps."""
    return memory.slots // 2 if memory.grows else 7 * memory.slots // 10


def _slots_for(keys: int) -> int:
    """The slots that `keys` keys fill to at most 35 %, so that they may double before the index must grow."""
    slots = LEAST_SLOTS
    while 7 * slots < 20 * keys:
        slots *= 2
    return slots


def _own(array: Codes) -> Codes:
    """The array in the form of the kernels' arguments: contiguous and writeable, so that each is compiled once."""
    return array if array.flags.carray else np.array(array, np.int64, order="C")


assert DONE == 0
