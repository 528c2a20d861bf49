"""A stopped server's data on a disk that others have filled: reading it needs no room, the rest says there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import noria
from cli.command import run
from disks import occupy, small_disk


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_disk(tmp_path_factory.mktemp("d"), 64) as disk:
        with noria.open(disk / "data") as db:
            db.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT, KEY (g))")
            db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
        occupy(disk / "others")
        yield disk / "data"


def files(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data.iterdir() if path.is_file() and path.name != "lock"}


def test_check_needs_no_room(data: Path) -> None:
    before = files(data)
    out = run("check", str(data))
    assert (out.returncode, out.stdout) == (0, f"{data}: 1 tables, 3 rows, 1 indexes: all whole\n"), out
    assert files(data) == before


@pytest.mark.parametrize("command", [("reshard", "--workers", "2", "--data-dir"), ("serve", "--data-dir"),
                                     ("backup", "{elsewhere}", "--data-dir")])
def test_others_say_that_there_is_none(data: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    before = files(data)
    out = run(*(word.format(elsewhere=tmp_path / "backup") for word in command), str(data))
    assert out.returncode == 1 and "no space left" in out.stderr.lower() and "Traceback" not in out.stderr, out
    assert out.stderr.splitlines()[-1].startswith(f"noria {command[0]}: ")
    assert files(data) == before
