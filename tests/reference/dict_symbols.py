"""The symbol table as two dictionaries: the slow, obvious reference for tests."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.limits import NULL_CODE
from noria.core.symbols import fold
from noria.core.types import Collation


class DictSymbols:
    """Implements core.symbols.Symbols."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._texts: list[str] = []
        self._folds: list[int] = []

    @property
    def fold_table(self) -> Codes:
        return np.array(self._folds, np.int64)

    def intern(self, text: str) -> int:
        code = self._ids.get(text)
        if code is None:
            code = self._ids[text] = len(self._texts)
            self._texts.append(text)
            self._folds.append(code)
            twin = fold(text)
            if twin != text:
                self._folds[code] = self.intern(twin)
        return code

    def intern_many(self, texts: pa.Array) -> Codes:
        return np.array([NULL_CODE if t is None else self.intern(t) for t in texts.to_pylist()], np.int64)

    def find(self, text: str) -> int | None:
        return self._ids.get(text)

    def text(self, code: int) -> str:
        return self._texts[code]

    def texts(self, codes: Codes) -> pa.Array:
        texts = [None if c == NULL_CODE else self._texts[c] for c in codes.tolist()]
        return pa.array(texts, pa.large_string())

    def folded(self, codes: Codes) -> Codes:
        return np.array([c if c == NULL_CODE else self._folds[c] for c in codes.tolist()], np.int64)

    def sort_keys(self, codes: Codes, collation: Collation) -> pa.Array:
        some = self.folded(codes) if collation is Collation.CI else codes
        keys = [None if t is None else t.encode() for t in self.texts(some).to_pylist()]
        return pa.array(keys, pa.large_binary())

    sweeps = 0

    def wants_sweep(self) -> bool:
        return False

    def sweep(self, held: Iterable[Codes]) -> int:
        return 0

    def memory(self) -> int:
        return sum(len(t) for t in self._texts)
