"""Backups: what comes back is what was there, between two commits; what is not whole is never taken for a backup."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete
from noria.dataflow.messages.packets import ChangeOrigin
from noria.runtime.transport.shard_owner import ShardOwner
from noria.storage.offline import backup
from noria.storage.offline.backup import BackupError
from noria.storage.rocks.sync_mark import FILE
from noria.storage.store import RocksStore
from storage.damage import GROUPS, ROWS, SMALL, cut, filled, flip, ids, write


def quiet(done: int, total: int) -> None:
    assert 0 <= done <= total


def made(tmp_path: Path, name: str = "b") -> backup.BackupManifest:
    store = filled(tmp_path / "data")
    store.checkpoint(str(tmp_path / "checkpoint"))
    store.close()
    return backup.make(tmp_path / "checkpoint", tmp_path / name, "now", "0", quiet)


def test_accounts_come_back(tmp_path: Path) -> None:
    (tmp_path / backup.ACCOUNTS).write_text("{}")  # as the server puts it beside its checkpoint
    made(tmp_path)
    backup.restore(tmp_path / "b", tmp_path / "restored", quiet)
    restored = tmp_path / "restored" / backup.ACCOUNTS
    assert restored.read_text() == "{}" and restored.stat().st_mode & 0o777 == 0o600
    (tmp_path / "b" / backup.ACCOUNTS).write_text("[]")
    with pytest.raises(BackupError, match=r"accounts\.json has not the bytes"):
        backup.restore(tmp_path / "b", tmp_path / "again", quiet)
    assert not (tmp_path / "again").exists()


def test_a_backup_comes_back_and_the_store_goes_on(tmp_path: Path) -> None:
    store = RocksStore(str(tmp_path / "fenced"), PlainSymbols(), fence=7)
    store.close()
    about = made(tmp_path)
    assert about.tables == dict.fromkeys(("good", "bad", "bag"), GROUPS * ROWS) and about.applied == (1, GROUPS + 1)
    assert backup.read(tmp_path / "b") == about
    assert backup.restore(tmp_path / "b", tmp_path / "new", quiet) == about
    lineage = ShardOwner(tmp_path / "new" / "worker-0", int((tmp_path / "new" / "epoch").read_text()) + 1)
    base = tmp_path / "new" / "worker-0" / "base"
    assert (base / FILE).exists()
    for _ in range(2):
        store = RocksStore(str(base), PlainSymbols(), fence=lineage.incarnation, memory=SMALL)
        assert all(ids(store, t) == list(range(GROUPS * ROWS)) for t in about.tables)
        store.close()
    store = RocksStore(str(base), PlainSymbols(), fence=lineage.incarnation, memory=SMALL)
    assert store.write([Delete("good", None)], 2, 1)[0][0].affected == GROUPS * ROWS
    store.close()
    lineage.release()
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_a_backup_of_a_fenced_store_can_be_owned(tmp_path: Path) -> None:
    store = RocksStore(str(tmp_path / "data"), PlainSymbols(), fence=41)
    store.set_recipe([], 9, 5, ChangeOrigin(1, "me@here", "CREATE TABLE t"))
    store.checkpoint(str(tmp_path / "checkpoint"))
    store.close()
    backup.make(tmp_path / "checkpoint", tmp_path / "b", "now", "0", quiet)
    backup.restore(tmp_path / "b", tmp_path / "new", quiet)
    epoch = int((tmp_path / "new" / "epoch").read_text()) + 1
    lineage = ShardOwner(tmp_path / "new" / "worker-0", epoch)
    store = RocksStore(str(tmp_path / "new" / "worker-0" / "base"), PlainSymbols(), fence=lineage.incarnation)
    assert [c.note.text for c in store.history()] == ["CREATE TABLE t"]
    store.set_recipe(["more"], epoch, 1)
    assert (lineage.incarnation, epoch, store.applied()) == (42, 10, (10, 1))
    store.close()
    lineage.release()


def test_a_backup_while_rows_are_written_is_one_cut(tmp_path: Path) -> None:
    """Every group that was acknowledged before is in it, in all three tables, and no part of one."""
    store = filled(tmp_path / "data", 5)
    taken: list[int] = []
    for number in range(4):
        acknowledged = store.applied()[1]
        place = tmp_path / f"checkpoint-{number}"
        store.checkpoint(str(place))
        copying = threading.Thread(target=backup.make, args=(place, tmp_path / f"b{number}", "now", "0", quiet))
        copying.start()
        while copying.is_alive() or store.applied()[1] < acknowledged + 5:
            write(store, store.applied()[1] + 1)
        copying.join()
        taken.append(acknowledged)
    store.close()
    for number, acknowledged in enumerate(taken):
        about = backup.restore(tmp_path / f"b{number}", tmp_path / f"new{number}", quiet)
        again = RocksStore(str(tmp_path / f"new{number}" / "worker-0" / "base"), PlainSymbols(), memory=SMALL)
        rows = list(range((acknowledged - 1) * ROWS))
        assert about.applied == again.applied() == (1, acknowledged)
        assert all(ids(again, t) == rows and about.tables[t] == again.row_count(t) == len(rows) for t in about.tables)
        again.close()


@pytest.mark.parametrize("damage", ["a byte", "cut", "gone", "more", "no json", "half a json", "newer"])
def test_a_damaged_backup_puts_nothing_in_place(tmp_path: Path, damage: str) -> None:
    made(tmp_path)
    directory = tmp_path / "b"
    largest = max((directory / "base").iterdir(), key=lambda p: p.stat().st_size)
    if damage == "a byte":
        flip(largest, largest.stat().st_size // 3)
    elif damage == "cut":
        cut(largest, largest.stat().st_size - 1)
    elif damage == "gone":
        largest.unlink()
    elif damage == "more":
        (directory / "base" / "more.sst").write_text("x")
    elif damage == "no json":
        (directory / backup.NAME).unlink()
    elif damage == "half a json":
        cut(directory / backup.NAME, 100)
    else:
        about = json.loads((directory / backup.NAME).read_text())
        (directory / backup.NAME).write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(BackupError) as told:
        backup.restore(directory, tmp_path / "new", quiet)
    print(told.value)
    assert str(directory) in str(told.value) and not (tmp_path / "new").exists()
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(BackupError, match="exists"):
        backup.make(tmp_path / "checkpoint", tmp_path / "b", "now", "0", quiet)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("")
    with pytest.raises(BackupError, match="not empty"):
        backup.restore(tmp_path / "b", tmp_path / "new", quiet)
    (tmp_path / "new" / "mine").unlink()
    backup.restore(tmp_path / "b", tmp_path / "new", quiet)


def test_an_interrupted_backup_is_none(tmp_path: Path) -> None:
    store = filled(tmp_path / "data", 5)
    store.checkpoint(str(tmp_path / "checkpoint"))
    store.close()

    def interrupted(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup.make(tmp_path / "checkpoint", tmp_path / "b", "now", "0", interrupted)
    assert not (tmp_path / "b").exists() and not (tmp_path / ".b.incomplete").exists()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / ".b.incomplete" / "base")  # as a kill leaves it
    with pytest.raises(BackupError, match="no whole backup"):
        backup.restore(tmp_path / ".b.incomplete", tmp_path / "new", quiet)
    backup.make(tmp_path / "checkpoint", tmp_path / "b", "now", "0", quiet)
    with pytest.raises(KeyboardInterrupt):
        backup.restore(tmp_path / "b", tmp_path / "new", interrupted)
    assert not (tmp_path / "new").exists() and not (tmp_path / ".new.restoring").exists()
