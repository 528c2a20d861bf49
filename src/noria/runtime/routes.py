from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from noria.core.keys import shard_of
from noria.core.plain_symbols import PlainSymbols
from noria.core.values import encode


class Routes:
    def __init__(self, workers: int):
        self.workers = workers
        self._known: dict[str, tuple[tuple[int, ...], int]] = {}

    @property
    def depth(self) -> int:
        return max((d for _, d in self._known.values()), default=0)

    def learn(self, routes: Iterable[tuple[str, tuple[int, ...], int]]) -> None:
        for view, by, depth in routes:
            self._known[view] = by, depth

    def forget(self, view: str) -> None:
        self._known.pop(view, None)

    def rename(self, view: str, name: str) -> None:
        if view in self._known:
            self._known[name] = self._known.pop(view)

    def owner(self, view: Any, key: tuple[Any, ...]) -> int:
        by = self._known.get(view.name, ((), 0))[0]
        if not by or self.workers == 1:
            return 0
        symbols = PlainSymbols()
        types = [view.key_fields[i].type for i in by]
        codes = [np.array([encode(key[i], t, symbols)]) for i, t in zip(by, types, strict=True)]
        return int(shard_of(codes, types, self.workers, symbols)[0])
