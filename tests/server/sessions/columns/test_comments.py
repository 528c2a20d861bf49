"""COMMENT of tables and columns: kept, shown, changed by ALTER TABLE and by `noria apply`, limited as in MySQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import noria
from noria.client import Database
from noria.core.types import TableDef
from noria.sql.commands import CreateTable
from noria.sql.parse import parse
from noria.sql.program.alteration import alteration
from noria.sql.program.definition_text import table_text
from noria.storage.format.catalog import table_from_json, table_to_json
from server.sessions.refusals import refused
from sql.catalogs import DictCatalog

TABLE = (r"CREATE TABLE t (id INT PRIMARY KEY COMMENT 'the ''key''', a VARCHAR(10) DEFAULT 'x' COMMENT 'na\\ïve', "
         "g INT AS (id + 1) COMMENT 'made') COMMENT = 'of the table'")


def comments(db: Database) -> dict[str, str]:
    rows = db.sql("SHOW FULL COLUMNS FROM t").rows
    found = {str(r[0]): str(r[-1]) for r in rows}
    assert found == dict(db.sql("SELECT column_name, column_comment FROM information_schema.columns "
                                "WHERE table_name = 't'").rows)
    [[table]] = db.sql("SELECT table_comment FROM information_schema.tables WHERE table_name = 't'").rows
    assert [r[-1] for r in db.sql("SHOW TABLE STATUS LIKE 't'").rows] == [table]
    return {**found, "": str(table)}


def test_they_are_kept_shown_and_changed(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql(TABLE)
        assert comments(db) == {"id": "the 'key'", "a": "na\\ïve", "g": "made", "": "of the table"}
        db.sql("INSERT INTO t (id) VALUES (1)")
        db.sql("ALTER TABLE t COMMENT 'another', MODIFY a VARCHAR(10) COMMENT 'changed', ADD z INT COMMENT 'last'")
        db.sql("ALTER TABLE t CHANGE z y BIGINT")
        text = str(db.sql("SHOW CREATE TABLE t").rows[0][1])
        db.sql("CREATE TABLE copy LIKE t")
        assert str(db.sql("SHOW CREATE TABLE copy").rows[0][1]) == text.replace("`t`", "`copy`")
    with noria.open(tmp_path / "data") as db:
        assert comments(db) == {"id": "the 'key'", "a": "changed", "g": "made", "y": "", "": "another"}
        db.sql("DROP TABLE t")
        db.sql(text)
        assert str(db.sql("SHOW CREATE TABLE t").rows[0][1]) == text


@pytest.mark.parametrize(("length", "table"), [(1024, False), (2048, True)])
def test_their_length_is_limited(tmp_path: Path, length: int, table: bool) -> None:
    text = "CREATE TABLE t (id INT PRIMARY KEY) COMMENT '{}'" if table else (
        "CREATE TABLE t (id INT PRIMARY KEY COMMENT '{}')")
    with noria.open(tmp_path / "data") as db:
        assert refused(db, text.format("ä" * (length + 1))) == (1628 if table else 1629)
        db.sql(text.format("ä" * length))


def made(text: str) -> TableDef:
    (command,) = parse(text, DictCatalog())
    assert isinstance(command, CreateTable)
    return command.table


def test_texts_and_catalogs_keep_them() -> None:
    table = made(TABLE)
    assert table.comment == "of the table" and table.columns[0].comment == "the 'key'"
    assert made(table_text(table)) == table
    assert table_from_json(json.loads(json.dumps(table_to_json(table)))) == table


def test_a_program_changes_them() -> None:
    was = made(TABLE)
    want = made(TABLE.replace("'made'", "'computed'").replace("of the table", "of it"))
    parts, wrong = alteration(was, want, False)
    assert parts == ("MODIFY COLUMN `g` int GENERATED ALWAYS AS ((`id` + 1)) VIRTUAL COMMENT 'computed'",
                     "COMMENT = 'of it'") and not wrong
    assert alteration(was, was, False) == ((), ())
