"""Reads views from any process of the host: no lock, no message, complete versions only (design/decisions.md, 5).

`attach(path)` returns `AttachedViews`; its `.view(name)` is an `AttachedView`.  It looks keys up one by one (Python
values in, lists of row tuples out) or many at once (Arrow).  A missing key is a miss, which only the worker can answer.
The caller applies order and limit, and adds the row of an empty aggregate.

Keeps true: an answer, even an empty one or an error, was read from memory that was still the view's afterwards, with a
key encoded for it.  The reader follows a view that moves, and never waits for the writer.  A view is of one thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.errors import SqlError
from noria.core.symbols import Symbols
from noria.core.types import Kind
from noria.core.values import decode
from noria.plan.reuse.lookups.through import ReadThrough
from noria.views import files, row_entries
from noria.views import read_kernels as kernels
from noria.views.decoding import Decoder, Row, chosen_table, decoder
from noria.views.keys import NoSuchKey, encode_columns, encode_key, encoder, key_columns
from noria.views.layout import FORMAT, INDEX, KEYS, MAGIC, NO_VERSION, WIDTH
from noria.views.mapped_files import MappedFile, MappedFiles
from noria.views.read_kernels import (
    ELSEWHERE,
    ENTRY_TICK,
    ENTRY_VERSION,
    LOOKUP_KEY,
    MISS,
    NEEDED_WORDS,
    NO_TICK,
    PLAIN,
    ROWS,
    ROWS_AT,
    SERVES,
    SLOT,
    SPECIAL,
    TOO_LARGE,
    VISIBLE,
)

Mask = npt.NDArray[np.bool_]
T = TypeVar("T")
NOTHING = -1  # a status beside those of the kernel: no row can equal the key
_NO_STAMPS = np.empty(0, np.int64)
_NO_WORDS = np.zeros(INDEX, np.int64)  # the memory of a view that does not exist
_NO_WORDS.flags.writeable = False  # as maps are, so that numba compiles each kernel only once, and not during a read
_NOWHERE = -1  # a STATE that no memory has
_FIRST_ANSWER = 512  # words of the private copy; grows with the largest key
_SLOT_BITS = 40  # the slot's bits of a handle; those above are the serial number of the view's memory
_FOLLOWS = 100  # the most files that a reader opens for one lookup before it reports a miss
_CHOICES = 64  # the most cached decoders of chosen columns
_TICK_TRIES = 16  # attempts to read several keys between the same two ticks


class LargeAnswer(Exception):
    """A key has more rows than `attach` allows as Python values at once.  `lookup_table` returns them all."""


class AttachedView:
    """One view.  It follows the view to other memory, and to other columns if the view is created again."""

    def __init__(self, directory: AttachedViews, name: str):
        self.name = name
        self._directory, self._most = directory, directory.most
        self._folder = files.view_folder(directory.path, name)
        self._serial = 0
        self._fresh_answer()
        self.detach()
        if not self._follow():
            raise KeyError(f"no view '{name}' in {directory.path}")

    # -------------------------------------------------------------- memory
    def detach(self) -> None:
        """Release the memory; the next lookup searches for the view again."""
        self._words: Codes = _NO_WORDS
        self._stamps: Codes = _NO_STAMPS
        self._file: MappedFile | None = None
        self._serves = _NOWHERE
        self._answer[SERVES] = _NOWHERE
        self._choosing: dict[tuple[int, ...], Decoder] = {}  # by the chosen columns
        self._texts = self._by_row = False
        self._swept = -1
        if len(self._answer) > _FIRST_ANSWER:
            self._fresh_answer()

    def _fresh_answer(self) -> None:
        self._answer = np.zeros(_FIRST_ANSWER, np.int64)
        self._answer[SERVES] = _NOWHERE
        self._q = memoryview(self._answer.data).cast("B").cast("q")

    def _follow(self) -> bool:
        """Find the view's current memory; False if it has none."""
        self.detach()
        listed: list[str] | None = None
        for _ in range(_FOLLOWS):
            before, listed = listed, files.newest_first(self._folder)
            if listed == before:  # else the view may have moved after the listing, or during it
                return False
            if any(self._open_record(path) for path in listed):
                return True
        return False

    def _open_record(self, path: str) -> bool:
        """Open the memory that a record names; False if the view is no longer there."""
        with suppress(FileNotFoundError, ValueError):
            about, spot = files.read_record(path)
            file = self._directory.maps.file(spot, about.full)
            words = file.words[spot.first:spot.first + spot.words]
            if words[MAGIC] == FORMAT and kernels.serves(words, spot.serves):
                self._open(about, spot, file, words)
                return True
        return False

    def _open(self, about: files.ViewDescriptor, spot: files.MemoryLocation, file: MappedFile, words: Codes) -> None:
        symbols = self._directory.maps.symbols(about.symbols)
        self.fields, self.key, self.visible, self.full = about.fields, about.key, about.visible, about.full
        self.definition = about.definition
        self.key_fields = tuple(about.fields[k] for k in about.key)
        self._shown = about.fields[:about.visible]
        self._symbols, self._encoders = symbols, [encoder(f, symbols) for f in self.key_fields]
        self._decoders = [(i, d) for i, f in enumerate(self._shown) if (d := decoder(f, symbols)) is not None]
        self._choosing = {}
        self._texts = any(f.type.is_text for f in (*about.fields[:about.visible], *self.key_fields))
        self._int_key = len(about.key) == 1 and self.key_fields[0].type.kind is Kind.INT
        self._by_row = int(words[KEYS]) != len(about.key)
        self._stride, self._first = int(words[WIDTH]) + 1, slice(ROWS_AT + 1, ROWS_AT + 1 + about.visible)
        if self._first.stop > len(self._answer):
            self._answer[NEEDED_WORDS] = self._first.stop
            self._enlarge()
        self._answer[VISIBLE], self._answer[SERVES] = about.visible, spot.serves
        self._serial += 1
        self._swept = _even(symbols.sweeps())
        self._file, self._words, self._serves = file, words, spot.serves
        self._stamps = _NO_STAMPS if about.full else file.stamps[spot.first_stamp:spot.first_stamp + spot.slots]

    def _read(self, key: Sequence[Any]) -> int:
        """Copy the key's rows from the view's current memory.  Returns PLAIN, SPECIAL, MISS or NOTHING."""
        for _ in range(_FOLLOWS):
            try:
                status = self._kernel() if self._write_key(key) else NOTHING
            except (SqlError, FileNotFoundError):  # perhaps for an outdated column, or the texts of an ended worker
                if self._serving():
                    raise
                status = ELSEWHERE
            if status == TOO_LARGE:
                self._enlarge()
            elif status != ELSEWHERE and (status != NOTHING or self._serving()):
                return int(status)
            elif not self._follow():
                return MISS
        return MISS

    def _kernel(self) -> int:
        if self._by_row:
            return int(row_entries.read_all(self._words, self._answer))
        return int(kernels.read(self._words, self._stamps, self._answer))

    def _serving(self) -> bool:
        """Whether the view is still in the memory that this object reads."""
        return bool(kernels.serves(self._words, self._serves))

    def _write_key(self, key: Sequence[Any]) -> bool:
        """Write the key's codes to the kernel's array; False if no row can equal the key."""
        try:
            if self._int_key and len(key) == 1 and type(key[0]) is int:
                self._q[LOOKUP_KEY] = key[0]
            else:
                for i, code in enumerate(encode_key(key, self._encoders, self.key_fields)):
                    self._q[LOOKUP_KEY + i] = code
        except (NoSuchKey, ValueError, ArithmeticError):  # numbers beyond 64 bits, texts that are no UTF-8
            return False
        return True

    def _enlarge(self) -> None:
        larger = np.zeros(2 * int(self._answer[NEEDED_WORDS]), np.int64)
        larger[:ROWS_AT] = self._answer[:ROWS_AT]
        self._answer, self._q = larger, memoryview(larger.data).cast("B").cast("q")

    def refresh(self) -> None:
        """Follow the view if it has moved."""
        if not self._serving():
            self._follow()

    @property
    def there(self) -> bool:
        """Whether the view had memory when this object last searched for it."""
        return self._file is not None

    def _settled(self, read: Callable[[], T], missed: T) -> T:
        """Run `read` so that no string is swept while it encodes keys, copies rows and decodes them.  Returns `missed`
        while the writer sweeps strings."""
        for _ in range(_TICK_TRIES):
            texts, serial = self._texts, self._serial
            before = self._symbols.sweeps() if texts else 0
            if before & 1:
                return missed
            try:
                result = read()
            except UnicodeDecodeError:
                if not texts or (serial == self._serial and self._symbols.sweeps() == before):
                    raise
                continue  # the bytes were being moved
            if texts == self._texts and (not texts or (
                    serial == self._serial and self._symbols.sweeps() == before)):
                self._swept = before
                return result
        return missed

    # -------------------------------------------------------------- one key
    def lookup(self, key: Sequence[Any], through: ReadThrough | None = None) -> list[Row] | None:
        """The visible columns of a key's rows as Python values; None for a miss.  `through`: selects columns and rows.

        A value that no row can equal (NULL, 1.5 for an INT column) has no rows.  Raises SqlError 1690 if a row
        holds an evaluation error, and LargeAnswer for more rows than `attach` allows.
        """
        try:
            rows = self._lookup(key, through)
            if not self._texts or self._symbols.sweeps() == self._swept:  # no sweep since the view was opened or read
                return rows
        except UnicodeDecodeError:
            pass  # the bytes were being moved; if not, `_settled` raises it again
        return self._settled(lambda: self._lookup(key, through), None)

    def _lookup(self, key: Sequence[Any], through: ReadThrough | None) -> list[Row] | None:
        status = self._read(key)
        if status == PLAIN:
            return self._plain_rows(self._q[ROWS]) if through is None else self._chosen_rows(through, True)
        if status == SPECIAL:
            return self._special_rows() if through is None else self._chosen_rows(through, False)
        return None if status == MISS else []

    def _chosen_rows(self, through: ReadThrough, plain: bool) -> list[Row]:
        choosing = self._choosing.get(through.columns)
        if choosing is None:
            if len(self._choosing) == _CHOICES:
                self._choosing.clear()
            choosing = self._choosing[through.columns] = Decoder(self._shown, through.columns, self._symbols, ROWS_AT)
        rows = self._q[ROWS]
        if plain and rows == 1:
            return choosing.one(self._q, through.checks)
        if rows > self._most:
            raise LargeAnswer
        decode_rows = choosing.plain if plain else choosing.special
        return decode_rows(self._q, rows, self._stride, through.checks)

    def lookup_table(self, key: Sequence[Any], through: ReadThrough | None = None) -> pa.Table | None:
        """`lookup` as Arrow, for keys of many rows."""
        return self._settled(lambda: self._lookup_table(key, through), None)

    def _lookup_table(self, key: Sequence[Any], through: ReadThrough | None) -> pa.Table | None:
        codes = self.lookup_codes(key)
        if codes is None:
            return None
        rows, ordinal = np.ascontiguousarray(codes[:, :self.visible].T), np.zeros(len(codes), np.int64)
        return chosen_table(rows, ordinal, self._shown, self._symbols, through)

    def lookup_entry(self, key: Sequence[Any], through: ReadThrough | None = None) -> tuple[list[Row], int, int] | None:
        """`lookup` for a cache in front of this view: (rows, handle, version), or None for a miss.  The rows are those
        of exactly this version.  If a full view has no entry for the key, handle and version are -1."""
        self._q[SLOT], self._q[ENTRY_TICK] = -1, NO_TICK
        rows = self.lookup(key, through)
        slot = self._q[SLOT]
        if rows is None:
            return None
        return (rows, (self._serial << _SLOT_BITS) | slot, self._q[ENTRY_VERSION]) if slot >= 0 else (
            rows, NO_VERSION, NO_VERSION)

    @property
    def entry_tick(self) -> int:
        """The tick that published the rows of the last `lookup_entry`; NO_TICK if the key had no entry."""
        return self._q[ENTRY_TICK]

    def _plain_rows(self, rows: int) -> list[Row]:
        """Decode rows that have weight 1 and no NULL or error."""
        decoders = self._decoders
        if rows == 1:
            row = self._q[self._first].tolist()
            for i, decode_value in decoders:
                row[i] = decode_value(row[i])
            return [tuple(row)]
        if rows > self._most:
            raise LargeAnswer
        stride, visible = self._stride, self.visible
        words = self._q[ROWS_AT + 1:ROWS_AT + rows * stride].tolist() if rows else []
        out = []
        for at in range(0, rows * stride, stride):
            row = words[at:at + visible]
            for i, decode_value in decoders:
                row[i] = decode_value(row[i])
            out.append(tuple(row))
        return out

    def _special_rows(self) -> list[Row]:
        """Decode rows with NULLs, other weights or errors."""
        if self._q[ROWS] > self._most:
            raise LargeAnswer
        symbols = cast(Symbols, self._symbols)
        out: list[Row] = []
        for at in range(ROWS_AT, ROWS_AT + self._q[ROWS] * self._stride, self._stride):
            weight, *codes = self._q[at:at + 1 + self.visible].tolist()
            row = tuple(decode(code, f.type, symbols) for code, f in zip(codes, self._shown, strict=True))
            out.extend([row] * weight)
        return out

    # -------------------------------------------------------------- codes and versions, for caches
    def lookup_codes(self, key: Sequence[Any]) -> Codes | None:
        """The codes of a key's rows, of shape (rows, columns), including hidden columns; None for a miss.

        A text code is valid until the next lookup, which may find the view with other symbols, and until the writer
        sweeps its strings.
        """
        status = self._read(key)
        if status == NOTHING:
            return np.empty((0, len(self.fields)), np.int64)
        return None if status == MISS else self._rows_copied()

    def _rows_copied(self) -> Codes:
        rows, stride = self._q[ROWS], self._stride
        stored = self._answer[ROWS_AT:ROWS_AT + rows * stride].reshape(rows, stride)
        weights = stored[:, 0]
        return np.repeat(stored[:, 1:], weights, axis=0) if (weights != 1).any() else stored[:, 1:].copy()

    def version(self, handle: int) -> int:
        """The current version of a handle's entry, or -1 if it was removed.  An equal version means equal rows.
        Versions are never used twice, so another key in the same slot has another version."""
        if handle >> _SLOT_BITS != self._serial:
            return NO_VERSION
        version: int = kernels.entry_version(self._words, handle & ((1 << _SLOT_BITS) - 1))
        return version

    def stamp(self, handle: int) -> None:
        """Write a read stamp, for a hit in a cache in front of this view."""
        if handle >> _SLOT_BITS == self._serial:
            kernels.stamp(self._words, self._stamps, handle & ((1 << _SLOT_BITS) - 1))

    # -------------------------------------------------------------- many keys
    def lookup_many(self, keys: Any, same_tick: bool = True, nulls: bool = False, through: ReadThrough | None = None
                    ) -> tuple[pa.Table, Mask]:
        """The visible columns of many keys' rows, with `__key`, the ordinal of each row's key; and which keys miss.

        `keys`: a table or batch of key columns by position, an array for a single column, or a list of tuples.
        With `same_tick`, all keys are read between the same two ticks.  If the writer is too busy for that, every key
        is reported missing, so that the worker answers.  Without it, only each key by itself is one version.
        `nulls`: a NULL in a key equals NULL; otherwise it equals nothing.
        """
        result = self._settled(lambda: self._lookup_many(keys, same_tick, nulls, through), None)
        return result if result is not None else self.missed(keys, through)

    def missed(self, keys: Any, through: ReadThrough | None = None) -> tuple[pa.Table, Mask]:
        """The result of `lookup_many` if all keys miss."""
        rows = keys.num_rows if isinstance(keys, (pa.Table, pa.RecordBatch)) else len(keys)
        none = np.empty((self.visible, 0), np.int64)
        return chosen_table(none, _NO_STAMPS, self._shown, self._symbols, through), np.ones(rows, np.bool_)

    def _lookup_many(self, keys: Any, same_tick: bool, nulls: bool, through: ReadThrough | None
                     ) -> tuple[pa.Table, Mask] | None:
        for _ in range(_FOLLOWS):
            try:
                columns, rows = key_columns(keys, self.key_fields)
                codes, nothing = encode_columns(columns, self.key_fields, rows, self._symbols)
            except Exception:  # any error of Arrow: the keys may be meant for newer columns of the view
                if self._serving():
                    raise
                status = ELSEWHERE
            else:
                if nulls:
                    nothing[:] = False
                status, total, out, ordinal, missing = self._read_many(codes, nothing, same_tick)
                if status == PLAIN:
                    rows = chosen_table(out[:, :total], ordinal[:total], self._shown, self._symbols, through)
                    return rows, missing
            if status != ELSEWHERE or not self._follow():
                break
        return None

    def lookup_between(self, low: int, high: int, tick: int | None = None, through: ReadThrough | None = None
                       ) -> pa.Table | None:
        """The visible columns of the rows whose only key column has a code from low to high, ordered by key, with
        `__key`, all of one tick.  It reads each code, so there must be few.  None if one misses.

        tick: the rows at the end of this earlier tick; then also None if one of them may have changed since.
        """
        def read() -> pa.Table | None:
            for _ in range(_FOLLOWS):
                codes = np.arange(low, high + 1, dtype=np.int64)[None, :]
                self._q[ENTRY_TICK] = NO_TICK
                status, total, out, ordinal, missing = self._read_many(codes, np.zeros(codes.shape[1], np.bool_), True)
                if status == PLAIN:
                    if missing.any() or (tick is not None and self._q[ENTRY_TICK] > tick):
                        return None
                    return chosen_table(out[:, :total], ordinal[:total], self._shown, self._symbols, through)
                if status != ELSEWHERE or not self._follow():
                    return None
            return None

        if self._by_row or len(self.key) != 1 or self.key_fields[0].type.is_text:
            return None
        return self._settled(read, None)

    def _read_many(self, codes: Codes, nothing: Mask, same_tick: bool) -> tuple[int, int, Codes, Codes, Mask]:
        """Run the kernel for many keys.  The status is PLAIN, ELSEWHERE, or MISS if no read fell between two ticks."""
        if self._by_row:
            return self._all_rows_for(codes.shape[1])
        tries = 0
        while True:
            before = kernels.stable_tick(self._words) if same_tick else 0
            result: tuple[int, int, Codes, Codes, Mask] = kernels.read_many(
                self._words, self._stamps, self._answer, codes, nothing)
            if result[0] == TOO_LARGE:
                self._enlarge()
                continue
            moved = not same_tick or (before >= 0 and kernels.stable_tick(self._words) == before)
            if moved or result[0] == ELSEWHERE:
                return result
            tries += 1
            if tries == _TICK_TRIES:
                return (MISS, *result[1:])

    def _all_rows_for(self, times: int) -> tuple[int, int, Codes, Codes, Mask]:
        """All rows of a view stored row by row, for each of `times` empty keys, in the form of `_read_many`."""
        while (status := int(row_entries.read_all(self._words, self._answer))) == TOO_LARGE:
            self._enlarge()
        missing = np.zeros(times, np.bool_)
        if status not in (PLAIN, SPECIAL):
            return status, 0, np.empty((self.visible, 0), np.int64), _NO_STAMPS, missing
        rows = np.ascontiguousarray(self._rows_copied()[:, :self.visible].T)
        n = rows.shape[1]
        return PLAIN, n * times, np.tile(rows, times), np.repeat(np.arange(times), n), missing

    def tick(self) -> int | None:
        """The last published tick; None while one is being published.  Reads over several views are consistent if it is
        the same before and after them."""
        tick: int = kernels.stable_tick(self._words)
        return None if tick < 0 else tick >> 1


class AttachedViews:
    """The views of a directory.  `most`: the most rows that `lookup` decodes to Python values."""

    def __init__(self, path: str, most: int = sys.maxsize):
        self.path, self.most = path, most
        self._views: dict[str, AttachedView] = {}
        self.maps = MappedFiles(path)

    def view(self, name: str) -> AttachedView:
        """Attach a view.  Raises KeyError if it does not exist (yet)."""
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = AttachedView(self, name)
        return view

    def names(self) -> list[str]:
        return files.names(self.path)

    def refresh(self) -> None:
        """Follow all views that have moved, so that their old files are unmapped and the memory becomes free."""
        for view in self._views.values():
            view.refresh()

    def forget(self, name: str) -> AttachedView | None:
        """Unmap a dropped view and return its object, even if others still hold it."""
        view = self._views.pop(name, None)
        if view is not None:
            view.detach()
        return view


def attach(path: str, most: int = sys.maxsize) -> AttachedViews:
    """Attach the views in their writer's directory.  `most`: see `AttachedViews`."""
    return AttachedViews(path, most)


def _even(sweeps: int) -> int:
    """The count of sweeps for a later comparison; -1, which never equals a count, while strings are swept."""
    return -1 if sweeps & 1 else sweeps
