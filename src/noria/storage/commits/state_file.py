"""A checkpoint of a worker's full states: one file beside its store, read when the worker starts again.

    magic | arrays, each aligned to 8 bytes | index (JSON) | its length and checksum | magic

Keeps true: the file says as of which commit it is (`Stand`).  A start takes it away and puts it back when its states
serve, so a start that dies of it finds none the next time.  An array is returned only if its checksum is right.  A file
that is cut or damaged is no error: states are then built from the tables.
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
from noria.storage.rocks.stand import Stand

Array = npt.NDArray[Any]
FILE, NEXT, TAKEN = "states", "states.next", "states.taken"  # the last one; being written; of a start under way
SYMBOLS = "symbols"
_MAGIC = b"noria states 1\n\0"
_TAIL = struct.Struct("<QI")
_TYPES = {"int64": np.int64, "uint8": np.uint8}
_SLICE = 2**22  # bytes written and summed at a time


def save(directory: Path, stand: Stand, symbols: Sequence[Array],
         states: Iterable[tuple[str, int, Callable[[], Batch]]], fits: Callable[[int], bool], name: str = FILE) -> int:
    """Write the strings and those states, each under its name, that fit: asked with the bytes that there would be, by
    about how many a state has.  name: of the file.  Returns how many states; OSError: nothing was saved."""
    path, saved = directory / name, 0
    beside = directory / f"{FILE}.new"
    index: dict[str, list[tuple[str, list[int], int, int]]] = {}
    try:
        with beside.open("wb") as file:
            file.write(_MAGIC)
            index[SYMBOLS] = [_put(file, a) for a in symbols]
            for state, nbytes, made in states:
                if not fits(file.tell() + nbytes):
                    continue
                rows = made()
                index[state] = [_put(file, a) for a in (rows.columns, rows.weights)]
                saved += 1
            tail = json.dumps({"version": __version__, "identity": stand.identity, "sequence": stand.sequence,
                               "arrays": index}).encode()
            file.write(tail + _TAIL.pack(len(tail), zlib.crc32(tail)) + _MAGIC)
            if name == NEXT:  # a worker that ends does not wait for the disk
                file.flush()
                os.fdatasync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return saved


def put_in_place(directory: Path) -> int:
    """The file that was written as NEXT is the last one from now on; its bytes.  OSError where there is none."""
    os.replace(directory / NEXT, directory / FILE)
    return (directory / FILE).stat().st_size


def remove(directory: Path) -> None:
    """No states are saved, nor being saved by a life that has ended."""
    for name in (FILE, NEXT, TAKEN, f"{FILE}.new"):
        (directory / name).unlink(missing_ok=True)


def _put(file: Any, array: Array) -> tuple[str, list[int], int, int]:
    """Type, shape, place and checksum."""
    file.write(bytes(-file.tell() % 8))
    place, data, check = file.tell(), _bytes(array), 0
    for at in range(0, len(data), _SLICE):
        check = zlib.crc32(data[at:at + _SLICE], check)
        file.write(data[at:at + _SLICE])
    return str(array.dtype), list(array.shape), place, check


def _bytes(array: Array) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class SavedStates:
    """The file of an earlier life.  SavedUnusable: it is damaged, or of another version."""

    def __init__(self, directory: Path):
        self._directory = directory
        (directory / TAKEN).unlink(missing_ok=True)  # the start that had taken it did not come to serve
        os.replace(directory / FILE, directory / TAKEN)
        with (directory / TAKEN).open("rb") as file:
            self.nbytes = os.fstat(file.fileno()).st_size
            if not self.nbytes:
                raise SavedUnusable("it is empty")
            # A copy, for kernels are compiled for arrays that can be written.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        try:
            about = self._read_index()
            self.stand = Stand(str(about["identity"]), int(about["sequence"]))
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

    def put_back(self) -> None:
        """The next start can use it, too."""
        if not (self._directory / FILE).exists():
            os.replace(self._directory / TAKEN, self._directory / FILE)

    def symbols(self) -> tuple[Array, Array, Array]:
        heap, starts, folds = self._of(SYMBOLS)
        return heap, starts, folds

    def states(self) -> Mapping[str, Callable[[], Batch | None]]:
        """By name; each gives its rows, None where they are damaged."""
        return {name: partial(self._batch, name) for name in self._arrays if name != SYMBOLS}

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
    """What was saved is damaged, or of another version."""


def saved_states(directory: Path, note: Callable[[str], object]) -> SavedStates | None:
    """What the last life has saved; None where there is nothing, or nothing that can be used."""
    try:
        return SavedStates(directory)
    except FileNotFoundError:
        return None
    except (SavedUnusable, OSError, ValueError) as e:
        note(f"saved states are not used: {e}")
        return None
