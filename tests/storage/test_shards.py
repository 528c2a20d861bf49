"""Directories of several workers: whose they are, and backups of them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from noria.core.plain_symbols import PlainSymbols
from noria.storage import backup
from noria.storage.errors import StoreError
from noria.storage.shards import bases, check_workers, shard_path, shards_of, workers_of
from noria.storage.store import RocksStore
from storage.test_damage import filled, ids


@pytest.mark.parametrize("workers", [1, 3])
def test_a_directory_is_for_as_many_workers_as_wrote_it(tmp_path: Path, workers: int) -> None:
    check_workers(tmp_path, workers)
    for w in range(workers):
        (tmp_path / f"worker-{w}" / "base").mkdir(parents=True)
    check_workers(tmp_path, workers)
    assert workers_of(tmp_path) == len(bases(tmp_path)) == workers
    with pytest.raises(StoreError, match=f"start with --workers {workers}"):
        check_workers(tmp_path, 2)


def test_a_directory_without_a_store_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no data directory"):
        bases(tmp_path)
    (tmp_path / "workers").write_text("many")
    with pytest.raises(StoreError, match="does not say how many"):
        workers_of(tmp_path)


def test_a_snapshot_that_lacks_a_worker_is_refused(tmp_path: Path) -> None:
    assert shards_of(str(tmp_path)) == [str(tmp_path)]
    for w in (0, 2):
        Path(shard_path(str(tmp_path), w, 3)).mkdir()
    with pytest.raises(StoreError, match="has no worker-1"):
        shards_of(str(tmp_path))


def test_a_backup_has_all_workers(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    held = []
    for w in range(2):
        store = filled(tmp_path / f"data-{w}", w + 2)
        store.checkpoint(shard_path(str(tmp_path / "checkpoint"), w, 2))
        held.append(ids(store, "good"))
        store.close()
    about = backup.make(tmp_path / "checkpoint", tmp_path / "b", "now", "0", lambda done, total: None)
    assert about.tables["good"] == sum(map(len, held)) and len(held[0]) != len(held[1])
    assert backup.restore(tmp_path / "b", tmp_path / "new", lambda done, total: None) == about
    assert workers_of(tmp_path / "new") == 2
    for base, wanted in zip(bases(tmp_path / "new"), held, strict=True):
        store = RocksStore(str(base), PlainSymbols())
        assert ids(store, "good") == wanted
        store.close()
    (tmp_path / "b" / "base" / "worker-1" / "CURRENT").unlink()
    with pytest.raises(backup.BackupError, match="worker-1/CURRENT is missing"):
        backup.restore(tmp_path / "b", tmp_path / "other", lambda done, total: None)
