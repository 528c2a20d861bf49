"""The reads of an engine's families, by name.

Keeps true: a read that fails raises what `unreadable` makes of the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from noria.storage.rocks import reading
from noria.storage.rocks.reading import Family

Found = TypeVar("Found")


class FamilyReads:
    """family: the family, or part of one, with a name.  unreadable: the error to raise for a failed read of it."""

    def __init__(self, family: Callable[[str], Family], unreadable: Callable[[str, Exception], Exception]):
        self._family, self._unreadable = family, unreadable

    def get(self, name: str, keys: Any) -> Any:
        """The value of a key, or the values of a list of keys; None for an absent key."""
        try:
            return self._family(name).get(keys)
        except Exception as e:
            raise self._unreadable(name, e) from e

    def read(self, name: str, read: Callable[[Family], Found]) -> Found:
        """What `read` returns of a family; its failure is what `unreadable` makes of it."""
        try:
            return read(self._family(name))
        except Exception as e:
            raise self._unreadable(name, e) from e

    def values_with_prefix(self, name: str, prefix: bytes, most: int = 2**62, after: bytes | None = None
                           ) -> tuple[list[bytes], bytes | None]:
        """The values of at most `most` keys that start with the prefix, in key order, from the key behind `after` on.

        Also returns the last key, or None if the end was reached.
        """
        return self.read(name, lambda family: reading.values_under(family, prefix, most, after))

    def count_with_prefix(self, name: str, prefix: bytes, most: int) -> int:
        """How many keys start with the prefix; counts no further than `most`."""
        return self.read(name, lambda family: reading.count_under(family, prefix, most))

    def items_with_prefix(self, name: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return self.read(name, lambda family: reading.items_under(family, prefix))

    def keys_between(self, name: str, first: bytes, last: bytes, backwards: bool = False) -> Iterator[bytes]:
        """Yield the keys from `first` to those that start with `last`, in order."""
        try:
            yield from reading.keys_between(self._family(name), first, last, backwards)
        except Exception as e:
            raise self._unreadable(name, e) from e

    def any_between(self, name: str, first: bytes, last: bytes) -> bool:
        """True if there is a key from `first` to `last`, both included."""
        return self.read(name, lambda family: reading.any_between(family, first, last))

    def values(self, name: str, rows: int, first: bytes | None = None) -> list[bytes]:
        """The first `rows` values from a key on; fewer only at the end."""
        return self.read(name, lambda family: reading.values(family, rows, first))

    def items(self, name: str, rows: int, first: bytes | None = None) -> list[tuple[bytes, bytes]]:
        return self.read(name, lambda family: reading.items(family, rows, first))

    def slices(self, name: str, rows: int, what: str, first: bytes | None = None, end: bytes | None = None
               ) -> Iterator[list[Any]]:
        """Yield the keys, values or items of a family from `first` to below `end`, `rows` at a time."""
        try:
            yield from reading.slices(self._family(name), rows, what, first, end)
        except Exception as e:
            raise self._unreadable(name, e) from e
