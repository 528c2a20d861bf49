"""Divides the keys of a bulk load into ranges: bounds that cut each family into parts of nearly equal size.

Keeps true: a part belongs to one family, and a key to one part.  The parts of a family ascend with its keys.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noria.core.types import TableDef
from noria.storage.tables.sst import entries
from noria.storage.tables.table import Index

SAMPLED_ROWS = 2_000  # of each batch that is read to compute the bounds


@dataclass(frozen=True)
class KeyRanges:
    """The bounds between each family's parts.  Parts are numbered consecutively over all families."""

    bounds: tuple[tuple[bytes, ...], ...]

    @property
    def total(self) -> int:
        return sum(len(b) + 1 for b in self.bounds)

    def _first_part(self, place: int) -> int:
        return sum(len(b) + 1 for b in self.bounds[:place])

    def parts(self, place: int, keys: pa.Array) -> npt.NDArray[np.int32]:
        """Return the number of the part of each key; `place` is the family's."""
        parts = np.full(len(keys), self._first_part(place), np.int32)
        for bound in self.bounds[place]:
            parts += pc.greater_equal(keys, pa.scalar(bound, keys.type)).to_numpy(zero_copy_only=False)
        return parts

    def family_of_part(self, part: int) -> int:
        """Return the place of the family that has this part."""
        starts = [self._first_part(p) for p in range(len(self.bounds))]
        return bisect.bisect_right(starts, part) - 1


class Sampled(Protocol):
    """A job that can read some rows of all its files."""

    @property
    def table(self) -> TableDef: ...

    @property
    def families(self) -> Sequence[Index | None]: ...

    def sampled(self) -> Iterator[pa.RecordBatch]: ...


def place(job: Sampled, families: Sequence[int], ranges: int) -> KeyRanges:
    """Compute bounds for these families from a sample of keys, which the driver reads from the files."""
    if ranges <= 1:
        return KeyRanges(tuple(() for _ in families))
    seen: list[list[bytes]] = [[] for _ in families]
    for batch in job.sampled():
        for held, family in zip(seen, families, strict=True):
            held += entries(job.table, job.families[family], _thinned(batch)).column(0).to_pylist()
    return KeyRanges(tuple(quantiles(sorted(held), ranges) for held in seen))


def _thinned(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows <= SAMPLED_ROWS:
        return batch
    return batch.take(pa.array(np.linspace(0, batch.num_rows - 1, SAMPLED_ROWS).astype(np.int64)))


def quantiles(keys: list[bytes], ranges: int) -> tuple[bytes, ...]:
    """Return bounds that cut these sorted keys into `ranges` parts, or fewer."""
    if not keys:
        return ()
    return tuple(sorted({keys[len(keys) * i // ranges] for i in range(1, ranges)} - {keys[0]}))
