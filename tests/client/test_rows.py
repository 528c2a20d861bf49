"""Rows as callers have them: by position, by name, by column; what is no row is refused before anything is sent."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import noria
from noria.client.rows import as_table
from noria.core.errors import SqlError

Tag = namedtuple("Tag", "name color")
COLUMNS = ("name", "color")


@pytest.mark.parametrize("rows", [
    [{"name": "python", "color": "blue"}, {"color": "red", "name": "ruby"}],
    [("python", "blue"), ["ruby", "red"]], [Tag("python", "blue"), Tag("ruby", "red")],
    (t for t in (("python", "blue"), ("ruby", "red"))),
    {"name": ["python", "ruby"], "color": ("blue", "red")},
    {"color": iter(["blue", "red"]), "name": ["python", "ruby"]},
    pa.table({"name": ["python", "ruby"], "color": ["blue", "red"]})])
def test_every_form_of_rows(rows: Any) -> None:
    assert as_table(rows, None, COLUMNS).select(COLUMNS).to_pylist() == [
        {"name": "python", "color": "blue"}, {"name": "ruby", "color": "red"}]


@pytest.mark.parametrize(("rows", "said"), [
    ([{"name": "python"}, {"name": "ruby", "color": "red"}], "row 1 has a value for color"),
    ([{"name": "python", "color": "blue"}, {"name": "ruby"}], "row 1 has no value for: color"),
    ([{"name": "python", "color": "blue"}, ("ruby", "red")], "row 1 is .*row 0 is a dictionary"),
    ([("ruby", "red"), {"name": "python", "color": "blue"}], "row 1 is .* not a sequence"),
    (["ab"], "row 0 is 'ab', not a sequence"), ([b"ab"], "not a sequence"), ([{"a", "b"}], "not a sequence"),
    ([5], "row 0 is 5"), ([None], "row 0 is None"), ([("a", "b"), ("c",)], "row 1 has 1 values for 2 columns"),
    ("ab", "'ab' is no list of rows"), (5, "5 is no list of rows"), (None, "None is no list"),
    ({"name": "python", "color": "blue"}, "column name is 'python', not a list of values"),
    ({"name": 5}, "column name is 5"), ({"name": {"a"}}, "not a list of values")])
def test_what_is_no_row_is_refused(rows: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        as_table(rows, None, COLUMNS)


def test_columns_belong_to_rows_without_names() -> None:
    assert as_table([("blue", "python")], ("color", "name"), COLUMNS).to_pylist() == [
        {"color": "blue", "name": "python"}]
    assert as_table([{"color": "blue"}], ("color",), COLUMNS).column_names == ["color"]
    for rows in ({"name": ["a"]}, pa.table({"name": ["a"]})):
        with pytest.raises(ValueError, match="leave `columns` out"):
            as_table(rows, ("color",), COLUMNS)


def test_rows_by_name_are_stored_by_name(tmp_path: Path) -> None:
    with noria.open(tmp_path) as db:
        db.sql("CREATE TABLE tags (name VARCHAR(20) PRIMARY KEY, color VARCHAR(20), n BIGINT NOT NULL DEFAULT 7)")
        tags = db.table("tags")
        assert tags.insert([{"color": "blue", "name": "python"}]) == 1
        assert list(db.sql("SELECT * FROM tags")) == [("python", "blue", 7)]
        with pytest.raises(SqlError) as unknown:
            tags.insert([{"name": "ruby", "colour": "red"}])
        assert unknown.value.code == 1054
        with pytest.raises(SqlError) as missing:
            tags.insert([{"color": "red"}])
        assert missing.value.code == 1364
        for beyond in (2**63, -(2**63) - 1, 2**70, 10**40):
            with pytest.raises(SqlError, match="Out of range value for column 'n'") as e:
                tags.insert([{"name": "big", "n": beyond}])
            assert e.value.code == 1264
        assert list(db.sql("SELECT COUNT(*) FROM tags")) == [(1,)]
