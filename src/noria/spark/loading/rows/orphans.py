"""The rows of a load that lack a parent: which ones they are, for the tasks that read the files.

`loading/parents.py` finds them.  A file for each split has the places of its orphans among the split's good rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noria.core.batch import Codes
from noria.core.types import TableDef


@dataclass(frozen=True)
class ReferredKey:
    """A FOREIGN KEY of a loaded table.  parent: the table that it refers to; None: it does not exist.

    columns, parent_columns: positions in the two tables.  own: the table refers to itself.  reason: the message of
    error 1452."""

    columns: tuple[int, ...]
    parent: TableDef | None
    parent_columns: tuple[int, ...]
    own: bool
    reason: str

    def named(self, table: TableDef) -> str:
        """The name of the key's only column; "" if it has several."""
        return table.columns[self.columns[0]].name if len(self.columns) == 1 else ""


class Orphans:
    """The orphans of one split.  path: its file.  Chunks are passed in the order of the file."""

    def __init__(self, path: str, table: TableDef, keys: Sequence[ReferredKey]):
        self._places, self._keys = np.load(path)
        self._reasons = [(key.named(table), key.reason) for key in keys]
        self._before = 0

    def of(self, good: Codes) -> Mapping[int, tuple[str, str]]:
        """The column and the reason of each orphan of a chunk.  good: the chunk's good rows, ascending."""
        first, end = np.searchsorted(self._places, [self._before, self._before + len(good)])
        rows = good[self._places[first:end] - self._before].tolist()
        self._before += len(good)
        return {row: self._reasons[n] for row, n in zip(rows, self._keys[first:end].tolist(), strict=True)}
