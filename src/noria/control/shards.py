"""Among how many workers the rows of a data directory are spread.

Keeps true: a directory is served by as many workers as it was made for; nothing is made in it before that is noted.
"""

from __future__ import annotations

from pathlib import Path

from noria.storage.disk import sync
from noria.storage.snapshot import SHARD

NOTE = "workers"  # the file that says how many, where it is not one


class OtherWorkers(Exception):
    """The directory was made for another number of workers."""


def note_workers(data_dir: Path, workers: int) -> None:
    """To be called by who holds the directory."""
    note = data_dir / NOTE
    known = int(note.read_text()) if note.exists() else 1 if (data_dir / f"{SHARD}0").exists() else 0
    if known and known != workers:
        raise OtherWorkers(f"the rows in {data_dir} are spread among {known} worker{'' if known == 1 else 's'}: give "
                           f"--workers {known}, or another directory")
    if not known and workers > 1:
        note.write_text(f"{workers}\n")
        sync(note)
        sync(data_dir)
