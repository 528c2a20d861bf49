"""Small tables and indexes share one column family, because RocksDB's work for a new family grows with their number.

RocksDB writes the options of all families to a file whenever one is created or dropped, and reads the file again.
With 480 families, that is 90 ms of processor time for each table and each index.  So a table's families of rows and of
indexes begin as *parts* of the family `shared`: the keys of a part start with its name and a zero byte.  A part that
grows gets a family of its own (`RocksEngine.separate`), and a bulk load moves its parts first.

Keeps true:

* A name has a family of its own or is a part, never both.  Only a crash within a move leaves both.  The move is one
  commit, which removes the keys of the part; so while the part has keys, the new family is not in use (`part_of`).
* A part is dropped by one range deletion, in the commit that forgets the table where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rocksdict import Rdict

from noria.storage.format.encoding import successor
from noria.storage.rocks import reading
from noria.storage.rocks.reading import Family, Part

SHARED = "shared"
RESIDUE = "shared?"  # in the record of damage: an unreadable block of `shared` that no table uses any more
PART_ENTRIES = 10_000  # of a part; more are read and written faster in a family of their own
PART_BYTES = 4 * 2**20
AT_ONCE = 4  # a part with so many times as much moves at once, any other one in an idle moment


@dataclass
class PartSize:
    """What was put into a part since it was last measured, with what it had then."""

    entries: int = 0
    nbytes: int = 0

    def exceeds(self, entries: int, nbytes: int = PART_BYTES, times: float = 1) -> bool:
        return self.entries > times * entries or self.nbytes > times * nbytes


def prefix_of(name: str) -> bytes:
    return name.encode() + b"\0"


def range_of(name: str) -> tuple[bytes, bytes]:
    """The keys of a part: from the first to below the second."""
    prefix = prefix_of(name)
    return prefix, successor(prefix)


def names_in(shared: Rdict) -> Iterator[str]:
    """The names of all parts that have keys."""
    cursor = shared.iter()
    cursor.seek_to_first()
    while cursor.valid():
        name = cursor.key().partition(b"\0")[0]
        yield name.decode()
        cursor.seek(name + b"\1")
    cursor.status()


def part_of(families: Mapping[str, Rdict], name: str) -> Family | None:
    """Where a name's keys are, among the open families of a database; None if neither it nor `shared` is open."""
    shared, own = families.get(SHARED), families.get(name)
    if shared is None:
        return own
    if own is not None:
        moving = 0
        with suppress(Exception):  # a damaged block of `shared` costs only the tables in it
            moving = reading.count_under(shared, prefix_of(name), 1)
        if not moving:
            return own
    return Part(shared, prefix_of(name))


class Parts:
    """The parts of an open database and their sizes.  most: entries of a part."""

    def __init__(self, most: int):
        self._most = most
        self.sizes: dict[str, PartSize] = {}
        self.outgrown: dict[str, None] = {}

    def add(self, name: str, entries: int = 0) -> None:
        self.sizes[name] = PartSize(entries)

    def forget(self, name: str) -> None:
        del self.sizes[name]
        self.outgrown.pop(name, None)

    def settle(self, families: Mapping[str, Rdict]) -> list[str]:
        """Add the parts that have keys after an opening; return the families of moves that were not committed."""
        found = list(names_in(families[SHARED])) if SHARED in families else []
        for name in self.sizes.keys() & families.keys() - set(found):
            self.forget(name)  # its move was committed, although its commit failed
        for name in found:
            self.sizes.setdefault(name, PartSize())
        return [name for name in found if name in families]

    def fill(self, name: str, removed: Collection[bytes], keys: Collection[bytes], values: Collection[bytes]
             ) -> tuple[list[bytes], list[bytes]]:
        """The keys to delete and to put, as they are in `shared`; counts what is put."""
        size, prefix = self.sizes[name], prefix_of(name)
        size.entries += len(keys)
        size.nbytes += sum(map(len, values))
        if size.exceeds(self._most):
            self.outgrown[name] = None
        return [prefix + k for k in removed], [prefix + k for k in keys]

    def next_outgrown(self, times: float) -> str | None:
        """The next part that may be too large, by so many times; it counts as outgrown again when it is written."""
        name = next((n for n in self.outgrown if self.sizes[n].exceeds(self._most, times=times)), None)
        if name is not None:
            del self.outgrown[name]
        return name

    def measure(self, name: str, items: list[tuple[bytes, bytes]]) -> bool:
        """Count a part anew.  items: its first ones, as many as a part may have.  False if it is small yet."""
        size = self.sizes[name] = PartSize(len(items), sum(len(value) for _, value in items))
        return size.exceeds(self._most // 2, PART_BYTES // 2)
