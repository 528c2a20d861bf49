"""Reads a family so that damage raises an error.

At a block that RocksDB cannot read, the binding's plain iterators end as if behind the last key.  Rows would be missing
silently.  Its cursors have a status that reports the damage.

A `Part` is what a table has of a family that it shares with others (`shared.py`): the keys with one prefix.  Each
function reads a part as a family of its own, without the prefix.

Keeps true: a function returns everything between its bounds, or raises.  The binding raises a bare Exception, which
`RocksEngine` turns into an error of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, TypeAlias

from rocksdict import Rdict, ReadOptions

from noria.storage.format.encoding import successor


@dataclass(frozen=True)
class Part:
    """The keys of a family that start with a prefix."""

    whole: Rdict
    prefix: bytes

    def get(self, keys: Any) -> Any:
        """As `Rdict.get`: the value of a key, or the values of a list of keys."""
        if isinstance(keys, list):
            return self.whole.get([self.prefix + key for key in keys])
        return self.whole.get(self.prefix + keys)

    def without(self, keys: list[bytes]) -> list[bytes]:
        at = len(self.prefix)
        return [key[at:] for key in keys]

    def items_without(self, items: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        at = len(self.prefix)
        return [(key[at:], value) for key, value in items]


Family: TypeAlias = Rdict | Part


def below(end: bytes | None) -> ReadOptions:
    """Bounds for an iterator.  Keep them in a variable while it lives: they own the bound's bytes."""
    bounds = ReadOptions()
    if end is not None:
        bounds.set_iterate_upper_bound(end)
    return bounds


def values_under(family: Family, prefix: bytes, most: int = 2**62, after: bytes | None = None
                 ) -> tuple[list[bytes], bytes | None]:
    """The values of at most `most` keys that start with the prefix, in key order, from the key behind `after` on.

    Also returns the last key, or None if the end was reached.
    """
    if isinstance(family, Part):
        behind = None if after is None else family.prefix + after
        found, last = values_under(family.whole, family.prefix + prefix, most, behind)
        return found, None if last is None else last[len(family.prefix) :]
    bounds = below(successor(prefix))
    cursor = family.iter(bounds)
    cursor.seek(prefix if after is None else after + b"\0")
    value, step = cursor.value, cursor.next
    found = []
    last = None
    for _ in repeat(None, most - 1):
        if (one := value()) is None:  # saves the call of `valid` for each row
            break
        found.append(one)
        step()
    else:
        if (one := value()) is not None:
            found.append(one)
            last = cursor.key()
    cursor.status()
    return found, last


def count_under(family: Family, prefix: bytes, most: int) -> int:
    """How many keys start with the prefix; counts no further than `most`."""
    if isinstance(family, Part):
        return count_under(family.whole, family.prefix + prefix, most)
    bounds = below(successor(prefix))
    cursor = family.iter(bounds)
    cursor.seek(prefix)
    valid, step = cursor.valid, cursor.next
    found = 0
    while found < most and valid():
        found += 1
        step()
    cursor.status()
    return found


def items_under(family: Family, prefix: bytes) -> list[tuple[bytes, bytes]]:
    if isinstance(family, Part):
        return family.items_without(items_under(family.whole, family.prefix + prefix))
    bounds = below(successor(prefix))
    cursor = family.iter(bounds)
    cursor.seek(prefix)
    key, value, step = cursor.key, cursor.value, cursor.next
    found = []
    while (one := key()) is not None:
        found.append((one, value()))
        step()
    cursor.status()
    return found


def keys_between(family: Family, first: bytes, last: bytes, backwards: bool = False) -> Iterator[bytes]:
    """Yield the keys from `first` to those that start with `last`, in order."""
    if isinstance(family, Part):
        at = len(family.prefix)
        for long in keys_between(family.whole, family.prefix + first, family.prefix + last, backwards):
            yield long[at:]
        return
    bounds = below(successor(last))
    cursor = family.iter(bounds)
    if backwards:
        cursor.seek_to_last()
    else:
        cursor.seek(first)
    key, step = cursor.key, cursor.prev if backwards else cursor.next
    while (found := key()) is not None:
        if found < first:
            return
        yield found
        step()
    cursor.status()


def any_between(family: Family, first: bytes, last: bytes) -> bool:
    """True if there is a key from `first` to `last`, both included."""
    if isinstance(family, Part):
        return any_between(family.whole, family.prefix + first, family.prefix + last)
    cursor = family.iter()
    cursor.seek(first)
    if not cursor.valid():
        cursor.status()
        return False
    return bool(cursor.key() <= last)


def values(family: Family, rows: int, first: bytes | None = None) -> list[bytes]:
    """The first `rows` values from a key on; fewer only at the end."""
    if isinstance(family, Part):
        return _first(slices(family, rows, "values", first), rows)
    found = list(islice(family.values(from_key=first), rows))
    if len(found) < rows:
        _to_the_end(family, (found[-1:] or [None])[0], "value", first, None)
    return found


def items(family: Family, rows: int, first: bytes | None = None) -> list[tuple[bytes, bytes]]:
    """The first `rows` keys and values from a key on; fewer only at the end."""
    if isinstance(family, Part):
        return _first(slices(family, rows, "items", first), rows)
    found = list(islice(family.items(from_key=first), rows))
    if len(found) < rows:
        _to_the_end(family, found[-1][0] if found else None, "key", first, None)
    return found


def slices(family: Family, rows: int, what: str, first: bytes | None = None, end: bytes | None = None
           ) -> Iterator[list[Any]]:
    """Yield a range in slices.  what: "keys", "values" or "items"."""
    if isinstance(family, Part):
        start, until = family.prefix + (first or b""), successor(family.prefix) if end is None else family.prefix + end
        for long in slices(family.whole, rows, what, start, until):
            yield long if what == "values" else family.without(long) if what == "keys" else family.items_without(long)
        return
    bounds = below(end)
    stored = iter(getattr(family, what)(from_key=first, read_opt=bounds))
    last: Any = None
    while some := list(islice(stored, rows)):
        last = some[-1]
        yield some
    if what == "items" and last is not None:
        last = last[0]
    _to_the_end(family, last, "value" if what == "values" else "key", first, end)


def _first(slices_: Iterator[list[Any]], rows: int) -> list[Any]:
    """The first slice; one with fewer rows is the last, which the next step of the iterator verifies."""
    found = next(slices_, [])
    if len(found) < rows:
        next(slices_, None)
    return found


def _to_the_end(family: Rdict, last: bytes | None, what: str, first: bytes | None, end: bytes | None) -> None:
    """Raise an error if the last key (or value) that a plain iterator returned is not the last of the range."""
    bounds = below(end)
    cursor = family.iter(bounds)
    cursor.seek_to_last()
    if cursor.valid() and (first is None or cursor.key() >= first):
        if last is not None and getattr(cursor, what)() == last:
            return
    else:
        cursor.status()
        if last is None:
            return
    _find_damage(family, first, end)


def _find_damage(family: Rdict, first: bytes | None, end: bytes | None) -> None:
    """Raise the error that ended an iterator early."""
    bounds = below(end)
    cursor = family.iter(bounds)
    if first is None:
        cursor.seek_to_first()
    else:
        cursor.seek(first)
    while cursor.valid():
        cursor.next()
    cursor.status()
    raise RuntimeError("Corruption: an iterator ended before the last key of its range")
