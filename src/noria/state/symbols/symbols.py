"""`SymbolTable` stores each distinct string once under a small id; `AttachedSymbols` reads it from another process.

Implements `core.symbols.Symbols`.  Memory grows in place (`memory/mapped.py`), so ids and the fold table never move.
When the hash table doubles, a new one replaces it.  With a directory, the memory is files that other processes map
read-only.  They are in a new subdirectory for each life of a worker.

Between ticks, `sweep` frees the ids that no state holds, and compacts the bytes of the others.  It increments SWEEPS
before and after.  A reader must find the same even number before and after it uses ids: to find keys, copy rows or
decode texts.  Otherwise one of the ids may have been freed meanwhile.

Keeps true: an id is visible, in the hash table or as a result, only after its bytes and span are in place.  The worker
gets an id only after its folded twin is known.  No state and no published view has a freed id.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.errors import SqlError
from noria.core.errors.codes import DATA_TOO_LONG
from noria.core.symbols import fold
from noria.core.types import Collation
from noria.state.memory import atomics
from noria.state.memory.mapped import GrowingMemory, map_file, open_map
from noria.state.symbols import symbol_kernels as kernels
from noria.state.symbols.symbol_kernels import (
    COUNT,
    FREE,
    GENERATION,
    HEADER,
    HEAP_ROOM,
    ID_ROOM,
    LENGTH_BITS,
    LIVE,
    MASK,
    OFFSET_BITS,
    PENDING,
    SWEEPS,
    TOP,
)

_HEAP_RESERVE = 2**OFFSET_BITS  # bytes of addresses; backed as needed
_ID_RESERVE = 2**32  # ids
_FIRST_HEAP, _FIRST_IDS, _FIRST_SLOTS = 2**16, 2**12, 2**13
_FRONT = 2**16  # strings cached in a Python dictionary, which is cleared when it is full
_FRONT_BYTES = 130  # of one of these strings, about
_LEAST_SWEEP = 2**20  # bytes: a smaller table is not worth a sweep
_GROWN = 1.5  # a table that has grown by this factor since the last sweep is swept again
_OFFSET = (1 << OFFSET_BITS) - 1
_NONE = np.empty(0, np.bool_)
Bytes = npt.NDArray[np.uint8]


class SymbolTable:
    """The table of the worker, its only writer."""

    def __init__(self, directory: str | None = None):
        self.path = None if directory is None else _fresh_directory(directory)
        self._heap_memory = self._memory("heap", _HEAP_RESERVE, _FIRST_HEAP)
        self._starts_memory = self._memory("starts", 8 * (HEADER + _ID_RESERVE), 8 * (HEADER + _FIRST_IDS + 1))
        self._folds_memory = self._memory("folds", 8 * _ID_RESERVE, 8 * _FIRST_IDS)
        self._table_memory = self._memory("hash.0", 8 * _FIRST_SLOTS, 8 * _FIRST_SLOTS)
        self._heap: Bytes = self._heap_memory.array(np.uint8)
        self._starts, self._folds = self._starts_memory.words, self._folds_memory.words
        self._table = self._table_memory.words
        self._spans = memoryview(self._starts_memory.map).cast("q")
        self._ids: dict[str, int] = {}
        self._swept = 0  # memory after the last sweep
        self.sweeps = 0
        self._starts[MASK] = _FIRST_SLOTS - 1
        self._set_room()

    def _memory(self, name: str, reserve: int, backed: int) -> GrowingMemory:
        return GrowingMemory(None if self.path is None else os.path.join(self.path, name), reserve, backed)

    def _set_room(self) -> None:
        room = min(self._starts_memory.backed // 8 - HEADER - 1, self._folds_memory.backed // 8)
        self._starts[ID_ROOM] = room
        self._starts[HEAP_ROOM] = self._heap_memory.backed
        self.fold_table: Codes = self._folds[:room]

    def _make_room(self, nbytes: int) -> None:
        """Make room for one more string of `nbytes` and its folded twin.  Raises SqlError 1406 if it is too long."""
        if nbytes >> LENGTH_BITS:
            raise SqlError(*DATA_TOO_LONG, f"Data too long: a text of {nbytes} bytes; {(1 << LENGTH_BITS) - 1} at most")
        starts = self._starts
        self._heap_memory.back(int(starts[TOP]) + 2 * nbytes)
        ids = int(starts[COUNT]) + 2
        self._starts_memory.back(8 * (HEADER + ids + 1))
        self._folds_memory.back(8 * ids)
        self._set_room()
        if 2 * (int(starts[LIVE]) + 2) > int(starts[MASK]):
            self._use_table(self._fresh_table(2 * (int(starts[MASK]) + 1)))

    def _fresh_table(self, slots: int) -> GrowingMemory:
        return self._memory(f"hash.{int(self._starts[GENERATION]) + 1}", 8 * slots, 8 * slots)

    def _use_table(self, memory: GrowingMemory) -> None:
        """Fill an empty hash table with all strings, and replace the old one by it."""
        generation, table = int(self._starts[GENERATION]) + 1, memory.words
        kernels.rehash(self._heap, self._starts, self._folds, table)
        self._starts[MASK] = len(table) - 1
        atomics.store(self._starts, GENERATION, generation)
        self._table_memory.unlink()
        self._table_memory, self._table = memory, table

    # -------------------------------------------------------------- strings to ids
    def intern(self, text: str) -> int:
        code = self._ids.get(text)
        return self._intern(text) if code is None else code

    def _intern(self, text: str) -> int:
        code = self._code(text)
        if self._folds[code] == PENDING:
            self._fold(code)
        if len(self._ids) >= _FRONT:
            self._ids.clear()
        self._ids[text] = code
        return code

    def _code(self, text: str) -> int:
        """Return the id of a text.  A new string that is not ASCII has no folded twin yet."""
        raw = text.encode()
        data = np.frombuffer(raw + b"\0", np.uint8)
        while (code := kernels.intern(self._heap, self._starts, self._folds, self._table, data, 0, len(raw))) < 0:
            self._make_room(len(raw))
        return int(code)

    def _fold(self, code: int) -> None:
        """Find the folded twin of a new string that the kernels could not fold.  A folded string is its own twin."""
        text = self.text(code)
        folded = fold(text)
        twin = code if folded == text else self._code(folded)
        if twin != code and self._folds[twin] == PENDING:
            self._folds[twin] = twin
        self._folds[code] = twin

    def intern_many(self, texts: pa.Array) -> Codes:
        out = np.empty(len(texts), np.int64)
        ends, data, valid = _buffers(texts)
        done, first = 0, texts.offset
        while True:
            done = kernels.intern_many(self._heap, self._starts, self._folds, self._table, data, ends, first,
                                       valid, out, done)
            if done == len(out):
                break
            self._make_room(int(ends[first + done + 1] - ends[first + done]))
        known = out[out >= 0]
        for code in np.unique(known[self._folds[known] == PENDING]).tolist():
            self._fold(code)
        return out

    def find(self, text: str) -> int | None:
        code = self._ids.get(text)
        return _find(self._heap, self._starts, self._table, text) if code is None else code

    # -------------------------------------------------------------- another life
    def saved(self) -> tuple[Bytes, Codes, Codes]:
        """Return all strings for `restore` in a later life: their bytes, the header and spans, the folded twins."""
        count = int(self._starts[COUNT])
        return self._heap[:int(self._starts[TOP])], self._starts[:HEADER + count], self._folds[:count]

    def restore(self, heap: Bytes, starts: Codes, folds: Codes) -> None:
        """Restore the saved strings of another table with their ids.  This table must have no strings.

        Raises ValueError if it has some, or if the arguments are not the strings of a table.
        """
        count, own, spans = len(folds), self._starts, starts[HEADER:]
        numbers = (int(starts[COUNT]), int(starts[TOP]), len(spans)) if len(starts) >= HEADER else ()
        ends = (spans & _OFFSET) + (spans >> OFFSET_BITS)
        sound = numbers == (count, len(heap), count) and not ((spans < 0) | (ends > len(heap)) | (folds >= count)).any()
        if int(own[COUNT]) or not sound:
            raise ValueError("these are no strings of a table")
        table = self._fresh_table(max(_FIRST_SLOTS, 1 << (2 * (int(starts[LIVE]) + 2)).bit_length()))
        self._heap_memory.back(len(heap) + 1)
        self._starts_memory.back(8 * (HEADER + count + 1))
        self._folds_memory.back(8 * (count + 1))
        self._heap[:len(heap)], self._folds[:count], own[HEADER:HEADER + count] = heap, folds, spans
        own[[COUNT, TOP, LIVE, FREE]] = starts[[COUNT, TOP, LIVE, FREE]]
        self._set_room()
        self._use_table(table)

    # -------------------------------------------------------------- ids to strings
    def text(self, code: int) -> str:
        span = self._spans[HEADER + code]
        at = span & _OFFSET
        return self._heap_memory.map[at : at + (span >> OFFSET_BITS)].tobytes().decode()

    def texts(self, codes: Codes) -> pa.Array:
        return _texts(self._heap, self._starts, codes, pa.large_string())

    def folded(self, codes: Codes) -> Codes:
        out: Codes = kernels.folded(self._folds, codes)
        return out

    def sort_keys(self, codes: Codes, collation: Collation) -> pa.Array:
        if collation is Collation.CI:
            codes = self.folded(codes)
        return _texts(self._heap, self._starts, codes, pa.large_binary())

    def __len__(self) -> int:
        return int(self._starts[LIVE])

    def memory(self) -> int:
        used = int(self._starts[TOP]) + 16 * int(self._starts[COUNT]) + self._table.nbytes
        return used + _FRONT_BYTES * len(self._ids)

    # -------------------------------------------------------------- strings that no state holds
    def sweep_is_due(self) -> bool:
        """True if the table has grown enough since the last sweep."""
        return self.memory() > max(_LEAST_SWEEP, _GROWN * self._swept)

    def sweep(self, held: Iterable[Codes]) -> int:
        """Free all strings except those with ids in `held` and their folded twins.  Returns the number of freed bytes.

        Numbers in `held` that are no ids do no harm.  Call it between ticks only: ids held elsewhere become invalid.
        If there is no room for a new hash table, it frees nothing until the table has grown again.
        """
        starts, before = self._starts, self.memory()
        marks = np.zeros(int(starts[COUNT]), np.bool_)
        for codes in held:
            kernels.mark(np.ascontiguousarray(codes), self._folds, marks)
        live = np.flatnonzero(marks)
        if len(live) < int(starts[LIVE]):
            try:
                table = self._fresh_table(max(_FIRST_SLOTS, 1 << (2 * (len(live) + 2)).bit_length()))
            except SqlError:
                self._swept = before
                return 0
            order = live[np.argsort(starts[HEADER + live] & _OFFSET, kind="stable")]
            top = int(starts[TOP])
            atomics.store(starts, SWEEPS, int(starts[SWEEPS]) + 1)
            kernels.sweep(self._heap, starts, self._folds, marks, order)
            self._ids.clear()
            self._use_table(table)
            atomics.store(starts, SWEEPS, int(starts[SWEEPS]) + 1)
            self._heap_memory.release(top)  # no page below the old end: a reader may follow an old span
            self._set_room()
        self.sweeps += 1
        self._swept = self.memory()
        return before - self._swept

    def remove_predecessors(self) -> None:
        """Delete the files of earlier lives.  Processes that have mapped them can still read them."""
        if self.path is None:
            return
        directory, own = os.path.split(self.path)
        for name in os.listdir(directory):
            if name.startswith(_PREFIX) and name < own:
                _remove(os.path.join(directory, name))


class AttachedSymbols:
    """Read-only access to the table of another process.  path: the directory of one life.  It follows growth."""

    def __init__(self, path: str):
        self.path = path
        self.heap = open_map(os.path.join(path, "heap"))
        self._heap: Bytes = np.frombuffer(self.heap, np.uint8)
        self._starts: Codes = map_file(os.path.join(path, "starts"), np.int64)
        self._words = memoryview(self._starts.data).cast("B").cast("q")
        self.spans = self._words[HEADER:]
        self._generation = -1
        self._table: Codes = np.zeros(1, np.int64)

    def sweeps(self) -> int:
        """Return the counter SWEEPS.  No id was freed between two calls that return the same even number."""
        return self._words[SWEEPS] if _IN_ORDER else int(atomics.load(self._starts, SWEEPS))

    def _follow(self) -> None:
        """Map the current hash table."""
        while (generation := int(atomics.load(self._starts, GENERATION))) != self._generation:
            try:
                self._table = map_file(os.path.join(self.path, f"hash.{generation}"), np.int64)
                self._generation = generation
            except FileNotFoundError:
                if int(atomics.load(self._starts, GENERATION)) == generation:
                    raise  # it was not replaced: the files of this life were removed

    def find(self, text: str) -> int | None:
        """Return the id of exactly this text, or None if it was not interned."""
        self._follow()
        return _find(self._heap, self._starts, self._table, text)

    def find_many(self, texts: pa.Array) -> Codes:
        """Return the ids of exactly these texts: -1 for one that was not interned, NULL_CODE for null.

        texts: a string or large_string array.
        """
        self._follow()
        ends, data, valid = _buffers(texts)
        out = np.empty(len(texts), np.int64)
        kernels.find_many(self._heap, self._starts, self._table, data, ends, texts.offset, valid, out)
        return out

    def text(self, code: int) -> str:
        span = self.spans[code]
        at = span & _OFFSET
        return self.heap[at : at + (span >> OFFSET_BITS)].decode()

    def texts(self, codes: Codes) -> pa.Array:
        return _texts(self._heap, self._starts, codes, pa.large_string())


_PREFIX = "symbols."
_IN_ORDER = platform.machine() == "x86_64"  # this processor does not reorder loads: a plain load acquires


def _fresh_directory(directory: str) -> str:
    """Make a subdirectory with a higher number than all others."""
    os.makedirs(directory, exist_ok=True)
    while True:
        lives = [int(n[len(_PREFIX):]) for n in os.listdir(directory) if n.startswith(_PREFIX)]
        path = os.path.join(directory, f"{_PREFIX}{max(lives, default=0) + 1:08d}")
        try:
            os.mkdir(path)
        except FileExistsError:
            continue  # another worker took the number
        return path


def _remove(directory: str) -> None:
    for name in os.listdir(directory):
        os.unlink(os.path.join(directory, name))
    os.rmdir(directory)


def _find(heap: Bytes, starts: Codes, table: Codes, text: str) -> int | None:
    raw = text.encode()
    code = int(kernels.find(heap, starts, table, np.frombuffer(raw + b"\0", np.uint8), 0, len(raw)))
    return None if code < 0 else code


def _buffers(texts: pa.Array) -> tuple[npt.NDArray[Any], Bytes, npt.NDArray[np.bool_]]:
    """Return the offsets and bytes of a string or large_string array, and which are not null (empty: all)."""
    _, ends_buffer, data_buffer = texts.buffers()
    wide = pa.types.is_large_string(texts.type)
    if not wide and not pa.types.is_string(texts.type):
        raise TypeError(f"texts of type {texts.type}; give a string or large_string array")
    has_ends = ends_buffer is not None and ends_buffer.size
    ends = np.frombuffer(ends_buffer if has_ends else bytes(8), np.int64 if wide else np.int32)
    has_bytes = data_buffer is not None and data_buffer.size
    data = np.frombuffer(data_buffer if has_bytes else b"\0", np.uint8)
    ends.flags.writeable = data.flags.writeable = False  # most are read-only, and each type needs a compiled kernel
    return ends, data, texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else _NONE


def _texts(heap: Bytes, starts: Codes, codes: Codes, type: Any) -> pa.Array:
    """Return the strings of codes as an Arrow array of large strings or binaries.  Negative codes become null."""
    ends = np.empty(len(codes) + 1, np.int64)
    nulls = kernels.gather_ends(starts, codes, ends)
    data = np.empty(int(ends[-1]), np.uint8)
    kernels.gather_bytes(heap, starts, codes, ends, data)
    valid = pa.array(codes >= 0).buffers()[1] if nulls else None
    return pa.Array.from_buffers(type, len(codes), [valid, pa.py_buffer(ends), pa.py_buffer(data)])


