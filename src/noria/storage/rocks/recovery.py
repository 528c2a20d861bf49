"""Checks that the write-ahead log is whole, before RocksDB opens for writing and would take a cut log for its end.

The check opens the store read-only, without its tables.  RocksDB then verifies that no closed log is missing or has
another size, reads every record with its checksum, and reports the last sequence number.  Nothing on disk changes, so
a log that was moved away can be brought back.

A store that a newer release wrote is rejected here, too (`StoreNewer`), before anything else of it is read or changed:
every opening of a store makes this check.

Keeps true: if the check passes, recovery loses no acknowledged write; otherwise `StoreDamaged` says what is missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

from noria.storage.format.catalog import FORMAT
from noria.storage.rocks import sync_mark, wal
from noria.storage.rocks.errors import StoreDamaged, StoreError, damaged, opening_error, refuse_newer

FORMAT_KEY = b"format"  # in the family meta: the version of everything on disk
MARKED = b"marked"  # in the family meta: this store has a mark, so a missing mark was removed
_META = "meta"
_MISSING = re.compile(r"Missing WAL with log number: (\d+)")
_SIZE = re.compile(r"WAL \(log number: (\d+)\) in MANIFEST is (\d+) bytes\s*,\s*but actually is (\d+)")
# The binding has no call for this option, but reads files of options.
_TRACKED = Path(__file__).parent / "rocksdb"


def tracked_options() -> Options:
    """RocksDB's default options, with logs recorded and verified in the MANIFEST."""
    options, _ = Options.load_latest(str(_TRACKED))
    found: Options = options
    return found


def check_log(path: str, family: Callable[[], Options]) -> None:
    """Raise StoreDamaged if an acknowledged write is missing.  family: makes the options of a column family."""
    wanted = sync_mark.read(path)
    options = tracked_options()
    # A torn record at the end is a commit that never returned, or is below the mark; anywhere else it is damage.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_keep_log_file_num(2)
    try:
        db = Rdict(path, options, {_META: family()}, AccessType.read_only(False))
    except Exception as e:  # rocksdict raises bare Exceptions
        raise _log_error(path, e) from e
    try:
        reached = int(db.latest_sequence_number())
        catalog = db.get_column_family(_META)
        marked, stored = catalog.get(MARKED) is not None, catalog.get(FORMAT_KEY)
    except Exception as e:
        raise damaged(path, f"its catalog cannot be read ({e})") from e
    finally:
        catalog = None
        db.close()
    refuse_newer(path, stored, FORMAT)
    if wanted is None and marked:
        raise _lost(path, f"its file {sync_mark.FILE}, which says how far it had synced, is gone, so whether the "
                          "write-ahead log is whole cannot be told")
    if wanted is not None and reached < wanted:
        raise _lost(path, f"the write-ahead log ends at change {reached}, but {wanted} were acknowledged, so the last "
                          f"{wanted - reached} changes of rows, index entries and counters are missing: {_logs(path)}")


def check_format(path: str, family: Callable[[], Options], shown: str = "") -> None:
    """Raise StoreNewer if a newer release wrote the store, whatever the log has lost.

    A store that cannot be read passes.  shown: the path to name in the error, if it is another one.
    """
    options = tracked_options()
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_keep_log_file_num(2)
    try:
        db = Rdict(path, options, {_META: family()}, AccessType.read_only(False))
    except Exception:  # rocksdict raises bare Exceptions
        return
    try:
        stored = db.get_column_family(_META).get(FORMAT_KEY)
    finally:
        db.close()
    refuse_newer(shown or path, stored, FORMAT)


def accept_loss(path: str, family: Callable[[], Options]) -> int:
    """Keep what the logs hold up to the first gap or damage, and drop the rest for good.

    Returns how many acknowledged changes are lost, as far as the mark shows.
    """
    check_format(path, family)
    try:
        wanted = sync_mark.read(path) or 0
    except StoreDamaged:
        wanted = 0
    options = Options(raw_mode=True)  # untracked: forgets the records of missing logs
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    try:
        names = [n for n in Rdict.list_cf(path, options) if n != "default"]
        db = Rdict(path, options, {n: family() for n in names})
        reached = int(db.latest_sequence_number())
        db.close()
    except Exception as e:
        raise opening_error(path, e) from e
    sync_mark.SyncMark(path, reached).close()
    return max(0, wanted - reached)


def _lost(path: str, what: str) -> StoreDamaged:
    return StoreDamaged(f"the data directory {path} is damaged: {what}; bring the file back, restore a backup "
                        "(noria restore), or noria check --accept-loss goes on with what is there")


def _logs(path: str) -> str:
    names = sorted(n for n in os.listdir(path) if n.endswith(".log"))
    sizes = [f"{n} ({os.path.getsize(os.path.join(path, n)):,} bytes)" for n in names]
    return f"the logs there are {', '.join(sizes)}" if sizes else "there is no log file"


def _log_error(path: str, error: Exception) -> StoreError:
    """The StoreError for RocksDB's message when it reads only the logs and the catalog."""
    text = str(error)
    if missing := _MISSING.search(text):
        what = f"the write-ahead log {os.path.join(path, f'{int(missing[1]):06d}.log')} is missing"
    elif size := _SIZE.search(text):
        what = (f"the write-ahead log {os.path.join(path, f'{int(size[1]):06d}.log')} has {int(size[3]):,} bytes, "
                f"{int(size[2]):,} were synced")
    elif (bad := _damaged_log(path)) is not None:
        what = f"the write-ahead log {bad[0]} has a damaged record at byte {bad[1]:,}"
    else:
        return opening_error(path, error)
    return _lost(path, what + ", so acknowledged rows are missing")


def _damaged_log(path: str) -> tuple[Path, int] | None:
    """The first log with a damaged record, and the record's offset."""
    for log in sorted(Path(path).glob("*.log")):
        at = wal.damaged_at(log)
        if at is not None:
            return log, at
    return None
