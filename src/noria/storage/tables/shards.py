"""Where the rows of a table are among several workers, on disk: `worker-<w>` directories, and which worker has a row.

    DATA/worker-<w>/base        the store of worker w
    DATA/workers                how many there are, where there are several
    DATA/reshard                what is on its way to another number of workers (`resharding.py`)
    SNAPSHOT/worker-<w>         the checkpoint of worker w; of one worker SNAPSHOT is the checkpoint itself

Keeps true: a directory is used by as many workers as it was written by; a row's worker depends on its values alone, and
no other one lets it in.
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
    """A data directory was written by another number of workers: by how many, and what to do."""


# ------------------------------------------------------------------ snapshots
def shard_path(path: str, worker: int, workers: int) -> str:
    """Where the worker makes its checkpoint of a snapshot at `path`."""
    return path if workers == 1 else os.path.join(path, f"worker-{worker}")


def shards_of(path: str) -> list[str]:
    """The checkpoints of a snapshot, by worker.  StoreError: one of them is missing."""
    count = _numbered(Path(path))
    return [shard_path(path, w, count) for w in range(count)] if count else [path]


# ------------------------------------------------------------------ data directories
def workers_of(data_dir: Path) -> int:
    """How many workers wrote it; 0: none yet.  StoreError: what it says is not what it has, or is about to be."""
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
    """Say durably by how many workers a new data directory is written."""
    if workers > 1:
        building = data_dir / f".{WORKERS}"
        building.write_text(f"{workers}\n")
        sync(str(building))
        building.rename(data_dir / WORKERS)
        sync(str(data_dir))


def check_workers(data_dir: Path, workers: int) -> None:
    """Before so many workers use it.  A new directory becomes one of so many.  WorkersDiffer: it is one of others."""
    found = workers_of(data_dir)
    if not found:
        note_workers(data_dir, workers)
    elif found != workers:
        raise WorkersDiffer(f"{data_dir} was written by {_counted(found)}, not by {_counted(workers)}: start with "
                            f"--workers {found}, or run noria reshard --data-dir {data_dir} --workers {workers} first")


def bases(data_dir: Path) -> list[Path]:
    """The stores of a data directory, by worker; StoreError if it is none."""
    count = workers_of(data_dir)
    found = [data_dir / f"worker-{w}" / "base" for w in range(max(count, 1))]
    missing = next((b for b in found if not b.is_dir()), None)
    if missing is not None:
        raise StoreError(f"{data_dir} is no data directory of noria: it has no {missing}")
    return found


def _counted(workers: int) -> str:
    return f"{workers} worker" + "s" * (workers != 1)


def _numbered(directory: Path) -> int:
    """How many worker-<w> there are, from 0 without a gap."""
    there = {p.name for p in directory.glob("worker-*")}
    if missing := [w for w in range(len(there)) if f"worker-{w}" not in there]:
        raise StoreError(f"{directory} has no worker-{missing[0]}: it is not whole")
    return len(there)


# ------------------------------------------------------------------ rows
def owners(table: TableDef, columns: dict[int, pa.Array], rows: int, workers: int) -> Codes | None:
    """The worker of each row; columns: by position, at least those of `table.sharded_by`.  None: a row may be
    anywhere."""
    by = table.sharded_by
    if by is None:
        return None
    if not by:
        return np.zeros(rows, np.int64)
    return shard_of([columns[c] for c in by], [table.columns[c].type for c in by], workers)


class Misrouted(Exception):
    """A row came to a worker that does not own it: a defect of whoever placed it."""


@dataclass(frozen=True)
class Shard:
    """The part of the rows that a worker has."""

    worker: int = 0
    workers: int = 1

    def refuse_others(self, table: TableDef, rows: Codes, symbols: Symbols) -> None:
        """Misrouted for a row that is none of this worker's.  rows: as codes."""
        by = table.sharded_by
        if self.workers == 1 or by is None:
            return
        whose = np.zeros(rows.shape[1], np.int64) if not by else shard_of(
            [rows[c] for c in by], [table.columns[c].type for c in by], self.workers, symbols)
        if len(others := whose[whose != self.worker]):
            raise Misrouted(f"a row of table {table.name} came to worker {self.worker} and belongs to worker "
                            f"{others[0]}: nothing of the statement is stored")


def spread_families(table: TableDef | None) -> frozenset[str]:
    """The column families of UNIQUE indexes of which several workers have entries."""
    return frozenset(index_family_of(table, i.columns, True) for i in table.spread_unique) if table else frozenset()
