"""A data directory, or a backup, that a newer release wrote: every command that opens one refuses it and changes
nothing."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from rocksdict import Rdict
from typer.testing import CliRunner

import noria
from noria.cli.main import app, register
from noria.core.errors import SqlError
from noria.storage.offline import backup
from noria.storage.rocks import recovery
from noria.storage.rocks.engine import META
from noria.storage.rocks.errors import StoreError, StoreNewer
from noria.storage.rocks.options import table_options
from noria.storage.rocks.sync_mark import SyncMark
from storage.damage import filled

if not app.registered_commands:
    register()


def newer(base: Path) -> None:
    """The store says that it is of format 99."""
    of_format(base, b"99")


def of_format(base: Path, number: bytes) -> None:
    names = [n for n in Rdict.list_cf(str(base), table_options()) if n != "default"]
    db = Rdict(str(base), recovery.tracked_options(), {n: table_options() for n in names})
    db.get_column_family(META).put(b"format", number)
    sequence = db.latest_sequence_number()
    db.close()
    SyncMark(str(base), sequence).close()


def stored_format(base: Path) -> bytes:
    names = [n for n in Rdict.list_cf(str(base), table_options()) if n != "default"]
    db = Rdict(str(base), recovery.tracked_options(), {n: table_options() for n in names})
    found: bytes = db.get_column_family(META).get(b"format")
    db.close()
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped server's directory."""
    base = tmp_path / "data" / "worker-0" / "base"
    base.parent.mkdir(parents=True)
    filled(base).close()
    (tmp_path / "data" / "epoch").write_text("1")
    return tmp_path / "data"


def contents(data: Path) -> dict[str, str]:
    """Of all but RocksDB's diary, and the two files that say who opened it last."""
    found = {}
    for place, _, names in os.walk(data):
        for name in names:
            if not name.startswith("LOG") and name not in ("epoch", "LOCK", "lock", "fence", "owner"):
                path = os.path.join(place, name)
                found[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return found


@pytest.mark.parametrize("command", [("check", "{data}"), ("check", "{data}", "--accept-loss"),
                                     ("backup", "{data}.copy", "--data-dir", "{data}"),
                                     ("reshard", "--data-dir", "{data}", "--workers", "2")])
def test_commands_refuse_it(data: Path, command: tuple[str, ...]) -> None:
    newer(data / "worker-0" / "base")
    before = contents(data)
    done = CliRunner().invoke(app, [part.format(data=data) for part in command])
    said = done.output + str(done.exception or "")
    assert done.exit_code == (3 if command[0] == "check" else 1) or isinstance(done.exception, SystemExit)
    assert "was written by a newer version of Noria (format 99, this one reads 6)" in said and "whole" not in said
    assert f"noria {command[0]}: " in said
    assert contents(data) == before and not Path(f"{data}.copy").exists()


@pytest.mark.one_worker("the stopped server had one")
def test_a_database_in_this_process_refuses_it(data: Path) -> None:
    newer(data / "worker-0" / "base")
    before = contents(data)
    with pytest.raises(StoreError, match="format 99"):
        noria.open(data)
    assert contents(data) == before


def test_a_backup_of_a_newer_store_is_not_put_in_place(data: Path, tmp_path: Path) -> None:
    base = data / "worker-0" / "base"
    newer(base)
    source = tmp_path / "backup"
    (source / "base").mkdir(parents=True)
    files = {}
    for path in base.iterdir():
        content = path.read_bytes()
        (source / "base" / path.name).write_bytes(content)
        files[path.name] = [len(content), hashlib.sha256(content).hexdigest()]
    about = {"format": 1, "noria": "99", "made": "", "tables": {}, "applied": [1, 1], "fence": 1, "sequence": 1,
             "files": files}
    (source / "backup.json").write_text(json.dumps(about))
    done = CliRunner().invoke(app, ["restore", str(source), str(tmp_path / "restored")])
    assert f"{source} was written by a newer version" in done.output + str(done.exception)
    assert not (tmp_path / "restored").exists()


def test_no_backup_is_made_of_a_newer_servers_checkpoint(data: Path, tmp_path: Path) -> None:
    newer(data / "worker-0" / "base")
    with pytest.raises(StoreNewer):
        backup.make(data / "worker-0" / "base", tmp_path / "backup", "", "", lambda done, total: None)
    assert not (tmp_path / "backup").exists()


def test_a_directory_of_before_databases_opens_with_its_tables_in_noria(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data", workers=1) as db:
        for text in ("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 10)",
                     "CREATE VIEW v AS SELECT n FROM t WHERE id = ?", "CREATE TABLE `odd.name` (id INT PRIMARY KEY)"):
            db.sql(text)
    (base,) = (tmp_path / "data").rglob("base")
    of_format(base, b"4")
    with noria.open(tmp_path / "data", workers=1) as db:
        assert db.sql("SHOW DATABASES").rows == [("noria",)]
        assert db.sql("SELECT n FROM noria.v WHERE id = 1").rows == [(10,)]
        assert db.sql("SELECT table_schema, table_name FROM information_schema.tables ORDER BY 2").rows == [
            ("noria", "odd.name"), ("noria", "t"), ("noria", "v")]
        with pytest.raises(SqlError, match=r"begin with it and a dot: 'odd\.name'"):
            db.sql("CREATE DATABASE odd")
    assert stored_format(base) == b"6"
