"""A bounded cache of values by text."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from noria.core.limits import KEPT_STATEMENTS, KEPT_TEXT_BYTES

T = TypeVar("T")


class BoundedCache(Generic[T]):
    """Caches values by text.  most: the number of entries; most_bytes: the sum of their texts' lengths, in characters.

    The entries that were put first are dropped first; a hit does not renew an entry.  A text longer than 1/64 of
    `most_bytes` is not cached.
    """

    def __init__(self, most: int = KEPT_STATEMENTS, most_bytes: int = KEPT_TEXT_BYTES):
        self._most, self._most_bytes = most, most_bytes
        self._kept: OrderedDict[str, T] = OrderedDict()
        self.get = self._kept.get
        self.nbytes = 0

    def put(self, text: str, value: T) -> None:
        if text in self._kept:
            del self._kept[text]
            self.nbytes -= len(text)
        if len(text) > self._most_bytes // 64:
            return
        self._kept[text] = value
        self.nbytes += len(text)
        while len(self._kept) > self._most or self.nbytes > self._most_bytes:
            old, _ = self._kept.popitem(last=False)
            self.nbytes -= len(old)

    def take(self, text: str) -> None:
        """Remove a text from the cache."""
        if self._kept.pop(text, None) is not None:
            self.nbytes -= len(text)

    def __len__(self) -> int:
        return len(self._kept)
