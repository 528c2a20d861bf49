"""Maps the files of views and symbols for a reader, each file once.

Keeps true: a file stays mapped while a view of this process is in it, and no longer.
"""

from __future__ import annotations

import os
from contextlib import suppress
from weakref import WeakValueDictionary

import numpy as np

from noria.core.batch import Codes
from noria.state.memory.mapped import map_file
from noria.state.symbols.symbols import AttachedSymbols
from noria.views import files

_NO_STAMPS = np.empty(0, np.int64)


class MappedFile:
    """A file of views and its stamps."""

    def __init__(self, words: Codes, stamps: Codes):
        self.words, self.stamps = words, stamps


class MappedFiles:
    """The mapped files of a directory of views."""

    def __init__(self, path: str):
        self.path = path
        self._files: WeakValueDictionary[str, MappedFile] = WeakValueDictionary()
        self._symbols: dict[tuple[str, int], AttachedSymbols] = {}

    def file(self, spot: files.MemoryLocation, full: bool) -> MappedFile:
        """The file of a view, mapped once for all views in it, with its stamps unless the view is full."""
        mapped = self._files.get(spot.file)
        if mapped is None:
            path = os.path.join(self.path, spot.file)
            mapped = self._files[spot.file] = MappedFile(map_file(path, np.int64), _NO_STAMPS)
        if not full and not len(mapped.stamps):
            with suppress(PermissionError):  # then reads of this process do not protect keys from eviction
                mapped.stamps = map_file(os.path.join(self.path, spot.stamps), np.int64, writable=True)
        return mapped

    def symbols(self, path: str | None) -> AttachedSymbols:
        """The symbol table of the current writer; tables of earlier writers are released."""
        if path is None:
            raise ValueError(f"the views in {self.path} have no symbol table that other processes can read")
        path = os.path.normpath(os.path.join(self.path, path))
        life = os.stat(os.path.join(path, "starts")).st_ino  # the path alone may repeat after a restart of the server
        table = self._symbols.get((path, life))
        if table is None:
            table = AttachedSymbols(path)
            self._symbols = {(path, life): table}
        return table
