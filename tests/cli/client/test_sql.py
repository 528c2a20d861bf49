"""`noria sql`: how rows are printed, and the prompt at a real terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import noria
from noria.cli.client.sql import Format, ended, show
from noria.client.api import Database

PROMPT = ("import fcntl, sys, termios, noria; from noria.cli.client import sql\n"
          "fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that it sends interrupts\n"
          "with noria.open(sys.argv[1]) as db:\n    sql._prompt(db, sql.Format.csv)\n")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with noria.open(tmp_path / "data") as opened:
        opened.sql("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(2000), d DATE)")
        opened.table("t").insert([(1, 'a "b", c', "2024-01-02"), (2, None, None), (3, "é\n" + "long " * 300, None)])
        yield opened


def printed(db: Database, text: str, format: Format) -> str:
    out = io.StringIO()
    show(db.sql(text), 1.0, format, out)
    return out.getvalue()


def test_rows_as_csv_and_json_are_read_back(db: Database) -> None:
    text, rows = "SELECT id, s, d FROM t ORDER BY id", db.sql("SELECT id, s, d FROM t ORDER BY id").rows
    back = list(csv.reader(io.StringIO(printed(db, text, Format.csv))))
    assert back == [["id", "s", "d"], *[["" if v is None else str(v) for v in row] for row in rows]]
    lines = printed(db, text, Format.json).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": i, "s": s, "d": None if d is None else str(d)} for i, s, d in rows]


def test_a_table_wraps_what_is_long_and_loses_nothing(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = printed(db, "SELECT * FROM t ORDER BY id", Format.table)
    assert max(map(len, shown.splitlines())) <= 60 and shown.count("long") == 300 and shown.count("NULL") == 3
    assert "3 rows" in shown and "…" not in shown
    assert "[red]" in printed(db, "SELECT '[red]x' AS `[b]` FROM t WHERE id = 1", Format.table), "no markup of ours"
    assert printed(db, "INSERT INTO t (id) VALUES (4), (5)", Format.table).startswith("ok, 2 rows affected (")


def test_a_statement_ends_with_its_line() -> None:
    lines = iter(["-- a comment", "SELECT 1;", "", "SELECT", "  2;", "SELECT 'x;y'", ";", "SELECT 3"])
    assert list(ended(lines)) == ["SELECT 1", "SELECT\n  2", "SELECT 'x;y'\n", "SELECT 3"]


class Terminal:
    def __init__(self, tmp_path: Path, *arguments: str):
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "NORIA_HISTORY": str(tmp_path / "history"), "TERM": "dumb",
                       "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen([sys.executable, "-c", PROMPT, *arguments], stdin=theirs, stdout=theirs,
                                        stderr=theirs, env=environment, start_new_session=True)
        os.close(theirs)
        self._said = ""

    def until(self, text: str, again: str = "") -> str:
        """What was said up to this text, which goes, too.  again: what is typed once more if nothing is said for 5 s:
        Python's readline misses an interrupt that comes just before it waits."""
        deadline = time.monotonic() + 60
        while text not in self._said:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([self._ours], [], [], min(left, 5) if again else left)[0]:
                assert again and left, self._said
                self.type(again)
                continue
            try:
                self._said += os.read(self._ours, 4096).decode(errors="replace")
            except OSError:  # the other end is closed
                raise AssertionError(self._said) from None
        before, _, self._said = self._said.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_the_prompt(tmp_path: Path) -> None:
    """Statements over several lines, errors, an interrupt, the history of an earlier time."""
    for life in range(2):
        terminal = Terminal(tmp_path, str(tmp_path / "data"))
        try:
            terminal.until("noria> ")
            if life == 0:
                terminal.type("CREATE TABLE t (id INT PRIMARY KEY);\n")
                terminal.until("ok, 0 rows")
                terminal.until("noria> ")
                terminal.type("SELECT nothing FROM t;\n")
                assert "error 1054" in terminal.until("noria> ")
                terminal.type("INSERT INTO t\n")
                terminal.until("    -> ")
                terminal.type("VALUES (41), (42);\n")
                assert "ok, 2 rows" in terminal.until("noria> ")
                terminal.type("SELECT half\x03")
                terminal.until("noria> ", again="\x03")
                terminal.type("SELECT MAX(id) AS m FROM t;\n")
                assert "m\r\n42\r\n" in terminal.until("noria> ")
                terminal.type("\x04")
            else:
                terminal.type("\x1b[A\n")  # the line before
                assert "m\r\n42\r\n" in terminal.until("noria> ")
                terminal.type("exit\n")
            assert terminal.process.wait(60) == 0
        finally:
            terminal.close()
    assert "VALUES (41), (42);" in (tmp_path / "history").read_text()
