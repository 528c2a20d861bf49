"""A checkpoint of a worker's full states: one file beside its store, which the next start reads.

    magic | arrays, each aligned to 8 bytes | index (JSON) | its length and checksum | magic

Keeps true: the file names the commit as of which it is valid (`StorePosition`).  A start renames the file and renames
it back
once its states serve, so a start that dies because of the file does not meet it again.  An array is returned only if
its checksum is right.  A truncated or damaged file is no error: states are then built from the tables.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noria import __version__
from noria.core.batch import Batch
from noria.storage.rocks.store_position import StorePosition

Array = npt.NDArray[Any]
FILE, NEXT, TAKEN = "states", "states.next", "states.taken"  # complete; being written; in use by a start
SYMBOLS = "symbols"
_MAGIC = b"noria states 1\n\0"
_TAIL = struct.Struct("<QI")
_TYPES = {"int64": np.int64, "uint8": np.uint8}
_SLICE = 2**22  # bytes written and summed at a time


def save(directory: Path, position: StorePosition, symbols: Sequence[Array],
         states: Iterable[tuple[str, int, Callable[[], Batch]]], fits: Callable[[int], bool], name: str = FILE,
         cut: str = "") -> int:
    """Write the symbol table and the states, each under its name, and return how many states were saved.

    A state is saved if `fits` accepts the bytes that the file would have with it.  After an OSError nothing is saved.

    name: of the file.  cut: of several workers, as of which all have saved their states.
    """
    path, saved = directory / name, 0
    unfinished = directory / f"{FILE}.new"
    index: dict[str, list[tuple[str, list[int], int, int]]] = {}
    try:
        with unfinished.open("wb") as file:
            file.write(_MAGIC)
            index[SYMBOLS] = [_put(file, a) for a in symbols]
            for state, nbytes, made in states:
                if not fits(file.tell() + nbytes):
                    continue
                rows = made()
                index[state] = [_put(file, a) for a in (rows.columns, rows.weights)]
                saved += 1
            tail = json.dumps({"version": __version__, "identity": position.identity, "sequence": position.sequence,
                               "cut": cut, "arrays": index}).encode()
            file.write(tail + _TAIL.pack(len(tail), zlib.crc32(tail)) + _MAGIC)
            if name == NEXT:  # a worker that is shutting down does not wait for the disk
                file.flush()
                os.fdatasync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return saved


def put_in_place(directory: Path) -> int:
    """Make the file NEXT the current one; return its bytes.  Raises OSError if there is none."""
    os.replace(directory / NEXT, directory / FILE)
    return (directory / FILE).stat().st_size


def remove(directory: Path) -> None:
    """Delete all saved states, including those that an earlier process was writing."""
    for name in (FILE, NEXT, TAKEN, f"{FILE}.new"):
        (directory / name).unlink(missing_ok=True)


def _put(file: Any, array: Array) -> tuple[str, list[int], int, int]:
    """Write an array; return its type, shape, offset and checksum."""
    file.write(bytes(-file.tell() % 8))
    place, data, check = file.tell(), _bytes(array), 0
    for at in range(0, len(data), _SLICE):
        check = zlib.crc32(data[at:at + _SLICE], check)
        file.write(data[at:at + _SLICE])
    return str(array.dtype), list(array.shape), place, check


def _bytes(array: Array) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class SavedStateFile:
    """Reads the file that an earlier process saved.  Raises SavedUnusable if it is damaged or of another version."""

    def __init__(self, directory: Path):
        self._directory = directory
        (directory / TAKEN).unlink(missing_ok=True)  # the start that used it died before it served
        os.replace(directory / FILE, directory / TAKEN)
        with (directory / TAKEN).open("rb") as file:
            self.nbytes = os.fstat(file.fileno()).st_size
            if not self.nbytes:
                raise SavedUnusable("it is empty")
            # A private copy, because kernels are compiled for writable arrays.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        try:
            about = self._read_index()
            self.position = StorePosition(str(about["identity"]), int(about["sequence"]))
            self.cut = str(about.get("cut", ""))
            self._arrays: dict[str, list[Any]] = dict(about["arrays"])
        except (ValueError, KeyError, TypeError, struct.error) as e:
            raise SavedUnusable(str(e)) from e
        if about["version"] != __version__:
            raise SavedUnusable(f"written by version {about['version']}")

    def _read_index(self) -> Any:
        data, ends = self._map, _TAIL.size + len(_MAGIC)
        if data[:len(_MAGIC)] != _MAGIC or data[-len(_MAGIC):] != _MAGIC:
            raise ValueError("it is cut")
        length, check = _TAIL.unpack_from(data, len(data) - ends)
        tail = data[len(data) - ends - length:len(data) - ends]
        if len(tail) != length or zlib.crc32(tail) != check:
            raise ValueError("its index is damaged")
        return json.loads(tail)

    def take_again(self) -> None:
        """After `put_back`: the next start does not meet the file, if this one dies."""
        os.replace(self._directory / FILE, self._directory / TAKEN)

    def put_back(self) -> None:
        """Make the file available to the next start."""
        if not (self._directory / FILE).exists():
            os.replace(self._directory / TAKEN, self._directory / FILE)

    def symbols(self) -> tuple[Array, Array, Array]:
        heap, starts, folds = self._of(SYMBOLS)
        return heap, starts, folds

    def states(self) -> Mapping[str, Callable[[], Batch | None]]:
        """By name, a function that returns the state's rows, or None if they are damaged."""
        return {name: partial(self._batch, name) for name in self._arrays if name != SYMBOLS}

    def is_whole(self) -> bool:
        """True if no state is damaged."""
        return all(rows() is not None for rows in self.states().values())

    def _batch(self, name: str) -> Batch | None:
        try:
            columns, weights = self._of(name)
        except SavedUnusable:
            return None
        return Batch(columns, weights) if columns.shape[1:] == weights.shape else None

    def _of(self, name: str) -> list[Array]:
        try:
            found = []
            for kind, shape, place, check in self._arrays[name]:
                array: Array = np.frombuffer(self._map, _TYPES[kind], int(np.prod(shape)), place).reshape(shape)
                if zlib.crc32(_bytes(array)) != check:
                    raise ValueError(f"{name} is damaged")
                found.append(array)
            return found
        except (ValueError, KeyError, TypeError) as e:
            raise SavedUnusable(str(e)) from e


class SavedUnusable(Exception):
    """Saved states are damaged or of another version."""


def saved_states(directory: Path, note: Callable[[str], object]) -> SavedStateFile | None:
    """The states that the last process saved; None if there are none or they cannot be used."""
    try:
        return SavedStateFile(directory)
    except FileNotFoundError:
        return None
    except (SavedUnusable, OSError, ValueError) as e:
        note(f"saved states are not used: {e}")
        return None
