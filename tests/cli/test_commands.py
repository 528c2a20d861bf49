"""The command line: help for every command, statements of a file, mistakes in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.command import run
from noria.cli.client.load import _absolute, _beside
from noria.cli.client.sql import statements
from noria.cli.options import serve_command
from noria.cli.server import restore
from noria.storage.offline import backup


@pytest.mark.parametrize("command", ["serve", "load", "verify", "sql", "version", "check", "backup", "restore", "apply",
                                     "export", "export-program", "reshard"])
def test_every_command_has_help(command: str) -> None:
    out = run(command, "--help")
    assert out.returncode == 0 and len(out.stdout.splitlines()) > 4
    assert f"  {command} " in run("--help").stdout


def test_statements_of_a_file() -> None:
    text = "-- a comment\nCREATE TABLE t (\n  a INT);\n\nINSERT INTO t\nVALUES (1);\nSELECT ';' FROM t"
    assert statements(text) == ["CREATE TABLE t (\n  a INT)", "INSERT INTO t\nVALUES (1)", "SELECT ';' FROM t"]


def test_rejects_go_beside_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, place in (("a.csv", tmp_path), ("days", tmp_path), ("days/2026-*/a.csv", tmp_path / "days"),
                        ("/x/d*/a.csv", Path("/x")), ("s3a://b/c.csv", tmp_path), (f"file://{tmp_path}/a", tmp_path)):
        assert _beside(_absolute(name)) == place, name


@pytest.mark.parametrize(("arguments", "words"), [
    (("sql", "SELECT 1", "--url", "http://127.0.0.1:9"), "did not answer"),
    (("verify", "--url", "nonsense://x"), "is no server's address"),
    (("serve", "--data-dir", "/tmp/x", "--memory-limit", "lots"), "is no size"),
    (("check", "/nonexistent"), "is no data directory"),
    (("reshard", "--data-dir", "/nonexistent", "--workers", "2"), "is no data directory"),
    (("serve", "--data-dir", "/tmp/x", "--workers", "65"), "noria serve: --workers 65: from 1 to 64"),
    (("reshard", "--data-dir", "/nonexistent", "--workers", "65"), "noria reshard: --workers 65: from 1 to 64"),
    (("reshard", "--data-dir", "/nonexistent", "--workers", "0"), "noria reshard: --workers 0: from 1 to 64"),
    (("restore", "/nonexistent", "/tmp/x-restored"), "no whole backup"),
    (("backup", "/tmp/x-backup", "--data-dir", "/nonexistent"), "is no data directory"),
    (("apply", "/nonexistent.sql"), "cannot be read"),
    (("export-program", "--url", "http://127.0.0.1:9"), "did not answer"),
    (("backup", "/tmp/x-backup", "--url", "http://127.0.0.1:9"), "did not answer"),
])
def test_mistakes_are_one_line(arguments: tuple[str, ...], words: str) -> None:
    out = run(*arguments)
    assert out.returncode == 1 and words in out.stderr and "Traceback" not in out.stderr
    assert len(out.stderr.strip().splitlines()) == 1


def test_a_directory_is_served_with_its_workers() -> None:
    assert serve_command(Path("/data/my shop"), 3) == "noria serve --data-dir '/data/my shop' --workers 3"
    assert serve_command(Path("/data/shop"), 1) == "noria serve --data-dir /data/shop"


def test_a_restored_directory_is_served_with_its_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    about = backup.BackupManifest(1, "0", "now", {"t": 2}, (0, 0), 0, 0, {}, [[1, 1], [1, 1], [1, 1]])
    monkeypatch.setattr(backup, "read", lambda source: about)
    monkeypatch.setattr(backup, "restore", lambda source, data_dir, progress: about)
    restore.command(tmp_path / "backup", tmp_path / "new")
    assert capsys.readouterr().out.endswith(f"noria serve --data-dir {tmp_path / 'new'} --workers 3\n")
