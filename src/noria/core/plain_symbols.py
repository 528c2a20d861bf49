"""A symbol table in plain Python: for constants at plan time, where no worker's table exists, and for tests.

It is slow and simple.  Workers use `state/symbols/symbols.py`, which must give the same results.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.limits import NULL_CODE
from noria.core.symbols import fold
from noria.core.types import Collation


class PlainSymbols:
    """Numbers texts in order of first use, and interns each text's folded twin with it."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._folds: list[int] = []
        self._ids: dict[str, int] = {}

    @property
    def fold_table(self) -> Codes:
        return np.array(self._folds, np.int64)

    def intern(self, text: str) -> int:
        known = self._ids.get(text)
        if known is not None:
            return known
        new = self._ids[text] = len(self._texts)
        self._texts.append(text)
        self._folds.append(new)
        folded = fold(text)
        if folded != text:
            self._folds[new] = self.intern(folded)
        return new

    def intern_many(self, texts: pa.Array) -> Codes:
        return np.array([NULL_CODE if t is None else self.intern(t) for t in texts.to_pylist()], np.int64)

    def find(self, text: str) -> int | None:
        return self._ids.get(text)

    def text(self, code: int) -> str:
        return self._texts[code]

    def texts(self, codes: Codes) -> pa.Array:
        shown = [None if c == NULL_CODE else self._texts[c] for c in codes.tolist()]
        return pa.array(shown, pa.large_string())

    def folded(self, codes: Codes) -> Codes:
        return np.array([c if c < 0 else self._folds[c] for c in codes.tolist()], np.int64)

    def sort_keys(self, codes: Codes, collation: Collation) -> pa.Array:
        shown = (self.folded(codes) if collation is Collation.CI else codes).tolist()
        return pa.array([None if c < 0 else self._texts[c].encode() for c in shown], pa.large_binary())

    sweeps = 0

    def sweep_is_due(self) -> bool:
        return False

    def sweep(self, held: Iterable[Codes]) -> int:
        return 0

    def memory(self) -> int:
        return sum(map(sys.getsizeof, self._texts))
