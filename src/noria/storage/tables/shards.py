"""Places the rows of a table among several workers: the `worker-<w>` directories, and the owner of each row.

    DATA/worker-<w>/base        the store of worker w
    DATA/workers                the number of workers, if there are several
    DATA/reshard                a conversion to another number of workers (`resharding.py`)
    SNAPSHOT/worker-<w>         the checkpoint of worker w; with one worker SNAPSHOT is the checkpoint itself

Keeps true: a directory is used by as many workers as wrote it.  A row's owner depends on its values alone, and no
other worker stores it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.keys import shard_of
from noria.core.symbols import Symbols
from noria.core.types import TableDef
from noria.storage.format.catalog import index_family_of
from noria.storage.rocks.disk import sync
from noria.storage.rocks.errors import StoreError

WORKERS = "workers"  # the file below a data directory
RESHARD, SWITCH, BEFORE = "reshard", "switch", "before-reshard"  # of `resharding.py`


class WorkersDiffer(StoreError):
    """Another number of workers wrote the data directory; the message has that number and a remedy."""


# ------------------------------------------------------------------ snapshots
def shard_path(path: str, worker: int, workers: int) -> str:
    """The path of a worker's checkpoint in a snapshot at `path`."""
    return path if workers == 1 else os.path.join(path, f"worker-{worker}")


def shards_of(path: str) -> list[str]:
    """The checkpoints of a snapshot, by worker.  Raises StoreError if one of them is missing."""
    count = _numbered(Path(path))
    return [shard_path(path, w, count) for w in range(count)] if count else [path]


# ------------------------------------------------------------------ data directories
def workers_of(data_dir: Path) -> int:
    """How many workers wrote the directory; 0: none yet.  Raises StoreError if that is unclear or about to change."""
    if (data_dir / RESHARD / SWITCH).exists():
        raise StoreError(f"{data_dir} is on its way to another number of workers: run noria reshard again, which "
                         "completes it in a moment")
    try:
        text = (data_dir / WORKERS).read_text()
    except FileNotFoundError:
        return int((data_dir / "worker-0" / "base").is_dir())
    if not text.strip().isdigit() or int(text) < 1:
        raise StoreError(f"{data_dir / WORKERS} does not say how many workers there are: restore a backup")
    return int(text)


def note_workers(data_dir: Path, workers: int) -> None:
    """Record durably by how many workers a new data directory is written."""
    if workers > 1:
        building = data_dir / f".{WORKERS}"
        building.write_text(f"{workers}\n")
        sync(str(building))
        building.rename(data_dir / WORKERS)
        sync(str(data_dir))


def check_workers(data_dir: Path, workers: int) -> None:
    """Check that the directory suits so many workers; a new one is set up for them.  Raises WorkersDiffer."""
    found = workers_of(data_dir)
    if not found:
        note_workers(data_dir, workers)
    elif found != workers:
        raise WorkersDiffer(f"{data_dir} was written by {counted(found)}, not by {counted(workers)}: start with "
                            f"--workers {found}, or run noria reshard --data-dir {data_dir} --workers {workers} first")


def bases(data_dir: Path) -> list[Path]:
    """The stores of a data directory, by worker.  Raises StoreError if one is missing."""
    count = workers_of(data_dir)
    found = [data_dir / f"worker-{w}" / "base" for w in range(max(count, 1))]
    missing = next((b for b in found if not b.is_dir()), None)
    if missing is not None:
        raise StoreError(f"{data_dir} is no data directory of noria: it has no {missing}")
    return found


def counted(workers: int) -> str:
    return f"{workers} worker" + "s" * (workers != 1)


def _numbered(directory: Path) -> int:
    """The number of worker-<w> directories.  Raises StoreError if one is missing."""
    there = {p.name for p in directory.glob("worker-*")}
    if missing := [w for w in range(len(there)) if f"worker-{w}" not in there]:
        raise StoreError(f"{directory} has no worker-{missing[0]}: it is not whole")
    return len(there)


# ------------------------------------------------------------------ rows
def owners(table: TableDef, columns: dict[int, pa.Array], rows: int, workers: int) -> Codes | None:
    """The worker of each row; None if any worker may store it.

    columns: by position, at least those of `table.sharded_by`.
    """
    by = table.sharded_by
    if by is None:
        return None
    if not by:
        return np.zeros(rows, np.int64)
    return shard_of([columns[c] for c in by], [table.columns[c].type for c in by], workers)


class Misrouted(Exception):
    """A worker received a row that it does not own: a defect of the router."""


@dataclass(frozen=True)
class Shard:
    """The part of the rows that a worker owns."""

    worker: int = 0
    workers: int = 1

    def refuse_others(self, table: TableDef, rows: Codes, symbols: Symbols) -> None:
        """Raise Misrouted for a row that the worker does not own.  rows: as codes."""
        by = table.sharded_by
        if self.workers == 1 or by is None:
            return
        whose = np.zeros(rows.shape[1], np.int64) if not by else shard_of(
            [rows[c] for c in by], [table.columns[c].type for c in by], self.workers, symbols)
        if len(others := whose[whose != self.worker]):
            raise Misrouted(f"a row of table {table.name} came to worker {self.worker} and belongs to worker "
                            f"{others[0]}: nothing of the statement is stored")


def spread_families(table: TableDef | None) -> frozenset[str]:
    """The column families of UNIQUE indexes whose entries several workers have."""
    return frozenset(index_family_of(table, i.columns, True) for i in table.spread_unique) if table else frozenset()
