"""Makes backups, which are checkpoints copied with checksums, and restores a data directory from one.

    BACKUP/backup.json      format, time, version, tables and their rows, every file with its SHA-256
    BACKUP/base/…           the files of RocksDB's checkpoint, taken between two commits; with several workers
                            BACKUP/base/worker-<w>/…, all as of one moment
    BACKUP/accounts.json    the accounts, if there are any; the server has put them beside its checkpoint

Keeps true: a directory with a `backup.json` is whole, because it is renamed only when all its files are on disk.  A
restore moves nothing into place before every checksum holds, and rejects a directory that is not empty.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from noria.accounts.registry import FILE as ACCOUNTS
from noria.storage.format.catalog import FORMAT as STORE_FORMAT
from noria.storage.format.catalog import CommittedWrite, family_of, read_catalog
from noria.storage.offline.snapshot import open_read_only
from noria.storage.rocks import reading, recovery
from noria.storage.rocks.disk import sync
from noria.storage.rocks.engine import META
from noria.storage.rocks.errors import StoreError, refuse_newer
from noria.storage.rocks.options import table_options
from noria.storage.rocks.sync_mark import SyncMark
from noria.storage.tables import meta
from noria.storage.tables.shards import note_workers, shards_of
from noria.storage.tables.table import Counters

FORMAT = 1
NAME, BASE = "backup.json", "base"
_COPY_BYTES = 4 * 2**20
_FENCE = struct.Struct("<qq")  # of `runtime/transport/shard_owner.py`: (front-end epoch, incarnation)
Progress = Callable[[int, int], object]  # bytes done, bytes in all


class BackupError(StoreError):
    """A backup cannot be made or restored; the message has the reason and a remedy."""


@dataclass(frozen=True)
class BackupManifest:
    """The content of backup.json.

    applied: (epoch, seq) of the last write in the backup; fence: the last owner's number; sequence: RocksDB's;
    files: name -> [bytes, SHA-256].

    shards: [fence, sequence] of each worker, empty for a single worker.  With
    several workers, tables and applied are those of all of them.  accounts: as in `files`, of accounts.json.
    """

    format: int
    noria: str
    made: str
    tables: dict[str, int]
    applied: tuple[int, int]
    fence: int
    sequence: int
    files: dict[str, list[Any]]
    shards: list[list[int]] = field(default_factory=list)
    accounts: list[Any] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(size for size, _ in self.files.values())


# ------------------------------------------------------------------ making one
def make(checkpoint: Path, target: Path, made: str, version: str, progress: Progress) -> BackupManifest:
    """Copy a checkpoint to a new backup.  made: the time to record, as text."""
    target = target.absolute()
    if target.exists():
        raise BackupError(f"{target} exists: a backup is a new directory, give another name")
    with _building(target, "incomplete", f"the backup {target}", "what was written of it is removed") as building:
        (building / BASE).mkdir(mode=0o700, parents=True)
        os.chmod(building, 0o700)
        shards = [Path(shard) for shard in shards_of(str(checkpoint))]
        files = sorted(p for shard in shards for p in shard.iterdir() if p.is_file())
        total, done = sum(p.stat().st_size for p in files), 0
        copied: dict[str, list[Any]] = {}
        for path in files:
            name = str(path.relative_to(checkpoint))
            (building / BASE / name).parent.mkdir(mode=0o700, exist_ok=True)
            digest = _copied(path, building / BASE / name, _after(progress, done, total))
            copied[name] = [path.stat().st_size, digest]
            done += path.stat().st_size
        bases = [building / BASE / shard.relative_to(checkpoint) for shard in shards]
        about = _of_all([_describe(base, made, version, copied) for base in bases])
        for left in (p for base in bases for p in base.iterdir() if p.is_file()):
            if str(left.relative_to(building / BASE)) not in copied:
                left.unlink()  # files that RocksDB wrote when `_describe` opened the copy
        for base in bases:
            sync(base)
        if (accounts := checkpoint.parent / ACCOUNTS).exists():
            digest = _copied(accounts, building / ACCOUNTS, lambda done: None)
            about = replace(about, accounts=[accounts.stat().st_size, digest])
        _write(building / NAME, json.dumps(asdict(about), indent=1).encode())
        sync(building / BASE)
    return about


@contextmanager
def _building(target: Path, suffix: str, what: str, outcome: str) -> Iterator[Path]:
    """Yield a new directory beside the target, and rename it to the target at the end.

    Raises BackupError for an OSError, which names `what` could not be written, and the outcome.
    """
    building = target.with_name(f".{target.name}.{suffix}")
    shutil.rmtree(building, ignore_errors=True)
    try:
        yield building
        sync(building)
        if target.exists():
            target.rmdir()
        building.rename(target)
        sync(target.parent)
    except OSError as e:
        raise BackupError(f"cannot write {what}: {e.strerror or e} ({e.filename or building}); {outcome}") from e
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _of_all(shards: list[BackupManifest]) -> BackupManifest:
    """Merge the descriptions of all workers' checkpoints."""
    if len(shards) == 1:
        return shards[0]
    tables = {name: sum(s.tables.get(name, 0) for s in shards) for name in shards[0].tables}
    return replace(shards[0], tables=tables, applied=max(s.applied for s in shards),
                   shards=[[s.fence, s.sequence] for s in shards])


def _describe(base: Path, made: str, version: str, files: dict[str, list[Any]]) -> BackupManifest:
    """Describe a copied checkpoint from its own catalog."""
    db = open_read_only(str(base), [META])
    try:
        family = db.get_column_family(META)
        refuse_newer(str(base), family.get(recovery.FORMAT_KEY), STORE_FORMAT)
        _, tables, _ = read_catalog(family.get)
        rows = {t.name: Counters.from_bytes(family.get(b"counters:" + family_of(t).encode()) or bytes(24)).rows
                for t in tables}
        done = [CommittedWrite.from_bytes(v) for v in reading.values_under(family, b"done:")[0]]
        last = max(((d.epoch, d.seq) for d in done), default=(0, 0))
        fence = int(family.get(meta.FENCE) or b"0")
        sequence = int(db.latest_sequence_number())
    except StoreError:
        raise
    except Exception as e:  # rocksdict raises bare Exceptions
        raise BackupError(f"the catalog of the copy cannot be read: {e}") from e
    finally:
        del family
        db.close()
    return BackupManifest(FORMAT, version, made, rows, last, fence, sequence, files)


# ------------------------------------------------------------------ restoring one
def read(source: Path) -> BackupManifest:
    """Read backup.json.  Raises BackupError if there is none, or if a newer version made it."""
    try:
        data = json.loads((source / NAME).read_bytes())
        if (found := int(data["format"])) > FORMAT:
            raise BackupError(f"{source} was made by a newer version (format {found}, this one reads {FORMAT})")
        about = BackupManifest(**{**data, "applied": tuple(data["applied"])})
    except FileNotFoundError:
        raise BackupError(f"{source} is no whole backup: it has no {NAME}") from None
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise BackupError(f"{source / NAME} cannot be read: {e}; take another backup") from e
    return about


def restore(source: Path, data_dir: Path, progress: Progress) -> BackupManifest:
    """Restore a backup to a data directory.  Every file is read twice: all are checked before the first is copied."""
    data_dir = data_dir.absolute()
    if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise BackupError(f"{data_dir} is not empty: a backup is restored into a new directory, give another name")
    about = read(source)
    total, done = 2 * about.nbytes, 0
    for name in _checked_names(source, about):
        _expect(source / BASE / name, about.files[name],
                _hashed(source / BASE / name, _after(progress, done, total)))
        done += about.files[name][0]
    if about.accounts:
        _expect(source / ACCOUNTS, about.accounts, _hashed(source / ACCOUNTS, lambda done: None))
    with _building(data_dir, "restoring", str(data_dir), "nothing was put in place") as building:
        count = max(1, len(about.shards))
        bases = [building / f"worker-{w}" / BASE for w in range(count)]
        for base in bases:
            base.mkdir(mode=0o700, parents=True)
        os.chmod(building, 0o700)
        for name in about.files:
            to = building / f"worker-{_worker_of(name, count)}" / BASE / Path(name).name
            found = _copied(source / BASE / name, to, _after(progress, done, total))
            _expect(source / BASE / name, about.files[name], found)
            done += about.files[name][0]
        for base in bases:
            recovery.check_format(str(base), table_options, str(source))
        if about.accounts:
            _copied(source / ACCOUNTS, building / ACCOUNTS, lambda done: None)
            os.chmod(building / ACCOUNTS, 0o600)
        _owned(building, about)
        note_workers(building, count)
        for base in bases:
            sync(base)
            sync(base.parent)
    return about


def _owned(building: Path, about: BackupManifest) -> None:
    """Write the small files around the store: epochs and incarnations continue above those in the backup."""
    _write(building / "epoch", str(about.applied[0]).encode())
    for w, (fence, sequence) in enumerate(about.shards or [[about.fence, about.sequence]]):
        _write(building / f"worker-{w}" / "fence", _FENCE.pack(about.applied[0], fence))
        SyncMark(str(building / f"worker-{w}" / BASE), sequence).close()


def _worker_of(name: str, count: int) -> int:
    """The worker that owns a file of a backup."""
    worker = next((w for w in range(count) if name.startswith(f"worker-{w}/")), None) if count > 1 else 0
    if worker is None:
        raise BackupError(f"{name} is of no worker of the backup; take another backup")
    return worker


def _checked_names(source: Path, about: BackupManifest) -> Iterator[str]:
    there = {str(p.relative_to(source / BASE)) for p in (source / BASE).rglob("*") if p.is_file()}
    if missing := sorted(set(about.files) - there):
        raise BackupError(f"{source} is damaged: {source / BASE / missing[0]} is missing; take another backup")
    if more := sorted(there - set(about.files)):
        raise BackupError(f"{source} is damaged: {source / BASE / more[0]} is no part of it; take another backup")
    yield from about.files


def _expect(path: Path, wanted: list[Any], digest: str) -> None:
    if digest != wanted[1]:
        raise BackupError(f"the backup is damaged: {path} has not the bytes that were written (SHA-256 {digest}, not "
                          f"{wanted[1]}); nothing was put in place, take another backup")


# ------------------------------------------------------------------ files
def _after(progress: Progress, before: int, total: int) -> Callable[[int], object]:
    """Report progress within one file, after `before` bytes of earlier files."""
    return lambda done: progress(before + done, total)


def _hashed(path: Path, progress: Callable[[int], object]) -> str:
    digest, done = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while some := file.read(_COPY_BYTES):
            digest.update(some)
            done += len(some)
            progress(done)
    return digest.hexdigest()


def _copied(path: Path, to: Path, progress: Callable[[int], object]) -> str:
    """Copy a file durably; return the SHA-256 of its bytes."""
    digest, done = hashlib.sha256(), 0
    with open(path, "rb") as file, open(to, "xb") as out:
        while some := file.read(_COPY_BYTES):
            digest.update(some)
            out.write(some)
            done += len(some)
            progress(done)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
