"""Families of sorted keys in memory, with the reads of `storage.rocks.engine` that statements use.

A temporary table is a `StoredTable` over these.  So INSERT, UPDATE and DELETE run on it as on any other table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from noria.storage.statements.stage import Effect


class Families:
    """The families of one temporary table, by name."""

    def __init__(self, stored: dict[str, dict[bytes, bytes]] | None = None) -> None:
        self._stored = stored or {}
        self._order: dict[str, list[bytes]] = {}  # the sorted keys of families that have not changed since

    def copy(self) -> Families:
        return Families({name: dict(family) for name, family in self._stored.items()})

    @property
    def nbytes(self) -> int:
        return sum(len(k) + len(v) for family in self._stored.values() for k, v in family.items())

    def apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            for change in effect.changes:
                family = self._stored.setdefault(change.family, {})
                for key in change.removed:
                    family.pop(key, None)
                family.update(zip(change.keys, change.values, strict=True))
                self._order.pop(change.family, None)

    def _keys(self, name: str) -> list[bytes]:
        if name not in self._order:
            self._order[name] = sorted(self._stored.get(name, ()))
        return self._order[name]

    # ------------------------------------------------------------ the reads of an engine
    def get(self, name: str, keys: Any) -> Any:
        family = self._stored.get(name, {})
        return [family.get(k) for k in keys] if isinstance(keys, list) else family.get(keys)

    def any_between(self, name: str, first: bytes, last: bytes) -> bool:
        keys = self._keys(name)
        at = bisect_left(keys, first)
        return at < len(keys) and keys[at] <= last

    def items(self, name: str, rows: int, first: bytes | None = None) -> list[tuple[bytes, bytes]]:
        keys, family = self._keys(name), self._stored.get(name, {})
        at = 0 if first is None else bisect_left(keys, first)
        return [(k, family[k]) for k in keys[at : at + rows]]

    def items_with_prefix(self, name: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        keys, family = self._keys(name), self._stored.get(name, {})
        found = []
        for at in range(bisect_left(keys, prefix), len(keys)):
            if not keys[at].startswith(prefix):
                break
            found.append((keys[at], family[keys[at]]))
        return found

    def slices(self, name: str, rows: int, what: str) -> Iterator[list[Any]]:
        family = self._stored.get(name, {})
        found: list[Any] = [family[k] if what == "values" else (k, family[k]) for k in self._keys(name)]
        for at in range(0, len(found), rows):
            yield found[at : at + rows]


__all__ = ["Families"]
