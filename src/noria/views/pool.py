"""Allocates the memory of views: small views share files, a large one has files of its own.  Call `Pools.allocate`.

A pool is a file of regions of one size, and a file of their stamps.  A view that outgrows its region moves to a larger
one, then to memory of its own.  So a thousand small views need some dozens of mappings.

Keeps true, since readers rely on it (`views/layout.py`): a region always has the same number of slots.  A returned
region is DEAD or MOVED before another view is placed in it.  Each view in it has a new STATE number, and versions
beyond all that were used there.  A pool without views is deleted, except one of each size.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import Protocol

from noria.core.batch import Codes
from noria.core.errors import SqlError
from noria.state.memory.mapped import GrowingMemory
from noria.views import files
from noria.views.layout import FREE_LISTS, INDEX, INDEXES, LEAST_SLOTS, PAD, VERSION

# (words of a region, slots of its index, regions of a file): whole pages, up to about a megabyte a file
_SIZES = ((10 * 2**8, LEAST_SLOTS, 64), (40 * 2**8, 2**9, 16), (160 * 2**8, 2**12, 8))
_ALL = 2**62  # "all" slots are stamped, for a full view, which has no stamps
_STAMPS = 2**29  # bytes of reserved addresses for the stamps of one view
_RESERVE = 2**34  # bytes of reserved addresses for a view with its own files, or four times its size if that is more


def slots_of(slots: int, slab: int) -> int:
    """The number of slots of the memory that `allocate` returns for this request."""
    return next((own for words, own, _ in _SIZES if _fits(words, own, slots, slab)), slots)


def _fits(words: int, own: int, slots: int, slab: int) -> bool:
    return slots <= own and INDEX + own + slab + PAD <= words


class ViewMemory(Protocol):
    """The memory of one view and its stamps."""

    words: Codes
    stamps: Codes
    slots: int  # the slots of the first index
    grows: bool  # whether larger indexes fit beside it

    @property
    def room(self) -> int:
        """The number of words that are backed by memory."""

    def back(self, words: int) -> bool:
        """Make the first `words` words usable; False if the view must move.  Raises SqlError if there is no space."""

    @property
    def stamped(self) -> int:
        """The number of slots whose stamps are backed by memory."""

    def back_stamps(self, slots: int) -> bool:
        """Make the stamps of the first `slots` slots usable; False and SqlError as in `back`."""

    def release_range(self, first: int, words: int, stamp: int, stamps: int) -> None:
        """Return words from `first` and stamps from `stamp` on, which are no longer used, to the system."""

    def spot(self, serves: int) -> files.MemoryLocation | None:
        """The location for readers; None for anonymous memory.  `serves`: the STATE of the view."""

    def release(self) -> None:
        """Return the memory.  Its STATE must already be DEAD or MOVED."""


class OwnFiles:
    """Files, or anonymous memory, of one view; implements `ViewMemory`."""

    grows = True

    def __init__(self, paths: tuple[str, str] | None, directory: str, slots: int, slab: int, full: bool):
        view, stamps = paths or (None, None)
        nbytes = 8 * (INDEX + slots + slab)
        self.slots, self._directory = slots, directory
        self._memory = GrowingMemory(view, max(_RESERVE, 4 * nbytes), nbytes)
        try:
            nbytes = 8 * (1 if full else slots)
            self._stamps = GrowingMemory(stamps, nbytes if full else max(_STAMPS, 8 * nbytes), nbytes)
            self._full = full
        except SqlError:
            self._memory.unlink()
            raise
        self.words, self.stamps = self._memory.words, self._stamps.words

    @property
    def room(self) -> int:
        return self._memory.backed // 8

    def back(self, words: int) -> bool:
        if 8 * words > self._memory.reserve:
            return False
        self._memory.back(8 * words)
        return True

    @property
    def stamped(self) -> int:
        return self._stamps.backed // 8 if not self._full else _ALL

    def back_stamps(self, slots: int) -> bool:
        if self._full:
            return True
        if 8 * slots > self._stamps.reserve:
            return False
        self._stamps.back(8 * slots)
        return True

    def release_range(self, first: int, words: int, stamp: int, stamps: int) -> None:
        self._memory.release_range(8 * first, 8 * words)
        if not self._full:
            self._stamps.release_range(8 * stamp, 8 * stamps)

    def spot(self, serves: int) -> files.MemoryLocation | None:
        if self._memory.path is None or self._stamps.path is None:
            return None
        return files.MemoryLocation(os.path.relpath(self._memory.path, self._directory), 0, len(self.words),
                                    os.path.relpath(self._stamps.path, self._directory), 0, len(self.stamps), serves)

    def release(self) -> None:
        self._memory.unlink()
        self._stamps.unlink()


class _Pool:
    """One file of regions of one size, with the file of their stamps."""

    def __init__(self, paths: tuple[str, str] | None, size: tuple[int, int, int]):
        self.region, self.slots, self.regions = size
        view, stamps = paths or (None, None)
        self.memory = GrowingMemory(view, 8 * self.region * self.regions, 0)
        try:
            self.stamps = GrowingMemory(stamps, 8 * self.slots * self.regions, 8 * self.slots * self.regions)
        except SqlError:
            self.memory.unlink()
            raise
        self.free: list[int] = []
        self.begun = 0  # the number of regions that were ever used
        self.used = 0

    def allocate(self) -> int:
        """Allocate a region and return its number.  Raises SqlError if there is no space."""
        if not self.free:
            self.memory.back(8 * self.region * (self.begun + 1))
            self.free.append(self.begun)
            self.begun += 1
        self.used += 1
        return self.free.pop()

    @property
    def full(self) -> bool:
        return self.used == self.regions

    def unlink(self) -> None:
        self.memory.unlink()
        self.stamps.unlink()


@dataclass
class Region:
    """A region of a pool, for one view; implements `ViewMemory`."""

    _owner: Pools
    _pool: _Pool
    number: int
    grows = False

    def __post_init__(self) -> None:
        pool = self._pool
        self.slots, first = pool.slots, self.number * pool.region
        self.words: Codes = pool.memory.words[first:first + pool.region]
        self.stamps: Codes = pool.stamps.words[self.number * pool.slots:(self.number + 1) * pool.slots]
        self.words[FREE_LISTS:INDEXES] = self.words[INDEX:INDEX + pool.slots] = 0

    @property
    def room(self) -> int:
        return self._pool.region - PAD

    def back(self, words: int) -> bool:
        return words <= self.room

    @property
    def stamped(self) -> int:
        return self.slots

    def back_stamps(self, slots: int) -> bool:
        return slots <= self.slots

    def release_range(self, first: int, words: int, stamp: int, stamps: int) -> None:
        raise AssertionError("a region has one index for good")

    def spot(self, serves: int) -> files.MemoryLocation | None:
        pool = self._pool
        if pool.memory.path is None or pool.stamps.path is None:
            return None
        return files.MemoryLocation(os.path.basename(pool.memory.path), self.number * pool.region, pool.region,
                                    os.path.basename(pool.stamps.path), self.number * pool.slots, pool.slots, serves)

    def release(self) -> None:
        self._owner.release(self._pool, self.number, int(self.words[VERSION]))


class Pools:
    """Allocates the memory of one writer's views.  `path` None: anonymous memory."""

    def __init__(self, path: str | None, epoch: int, numbers: itertools.count[int]):
        self._path, self._epoch, self._numbers = path, epoch, numbers
        self._pools: list[list[_Pool]] = [[] for _ in _SIZES]
        self._states = itertools.count(1)
        self.version = epoch << 40  # the greatest version in returned regions

    def number(self) -> int:
        """A number that no STATE had before."""
        return next(self._states)

    def allocate(self, slots: int, slab: int, paths: tuple[str, str] | None, full: bool) -> ViewMemory:
        """Allocate memory for an index of at least `slots` slots and `slab` words.  Raises SqlError if there is no
        space."""
        for size, pools in zip(_SIZES, self._pools, strict=True):
            if _fits(size[0], size[1], slots, slab):
                return self._region(size, pools)
        return OwnFiles(paths, self._path or "", slots, slab, full)

    def _region(self, size: tuple[int, int, int], pools: list[_Pool]) -> Region:
        """Allocate a region in the oldest pool that has a free one, so that younger pools become empty."""
        pool = next((p for p in pools if not p.full), None)
        if pool is None:
            paths = None
            if self._path is not None:
                paths = files.pool_paths(self._path, self._epoch, next(self._numbers), size[0])
            pool = _Pool(paths, size)
            pools.append(pool)
        return Region(self, pool, pool.allocate())

    def release(self, pool: _Pool, number: int, version: int) -> None:
        """Return a region to its pool.  version: the greatest version that was used in it."""
        self.version = max(self.version, version)
        pool.free.append(number)
        pool.used -= 1
        pools = next(p for p in self._pools if pool in p)
        empty = [p for p in pools if not p.used]
        if len(empty) > 1:
            pools.remove(empty[-1])
            empty[-1].unlink()
