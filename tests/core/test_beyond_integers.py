"""Comparisons of integers with literals beyond all of them are exact, though such a literal is a DOUBLE elsewhere."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.core.limits import MAX_INT, MIN_INT
from server.sessions.connection import Connection

ROWS = {1: MIN_INT, 2: MIN_INT + 1, 3: -1, 4: 0, 5: MAX_INT, 6: None}
BEYOND = (MIN_INT - 1, MIN_INT - 2, -(10**25), MAX_INT + 1, 2**64, 10**25)
OPERATORS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
             ">=": operator.ge}


@pytest.fixture(scope="module")
def a(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory: Path = tmp_path_factory.mktemp("d")
    with noria.open(directory / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, b BIGINT, KEY (b))")
        db.table("t").insert(list(ROWS.items()))
        yield Connection(db)


@pytest.mark.parametrize("number", BEYOND)
@pytest.mark.parametrize("sign", OPERATORS)
def test_a_comparison(a: Any, sign: str, number: int) -> None:
    wanted = [(i,) for i, b in ROWS.items() if b is not None and OPERATORS[sign](b, number)]
    assert sorted(a.rows(f"SELECT id FROM t WHERE b {sign} {number}")) == wanted
    assert sorted(a.rows(f"SELECT id FROM t WHERE NOT b {sign} {number}")) == sorted(
        (i,) for i, b in ROWS.items() if b is not None and (i,) not in wanted)
    assert sorted(a.rows(f"SELECT id FROM t WHERE b {sign} ?", number)) == wanted
    mirrored = [(i,) for i, b in ROWS.items() if b is not None and OPERATORS[sign](number, b)]
    assert sorted(a.rows(f"SELECT id FROM t WHERE {number} {sign} b")) == mirrored
    assert a.rows(f"SELECT b {sign} {number} FROM t WHERE id = 6") == [(None,)]


@pytest.mark.parametrize("number", BEYOND)
def test_lists_and_ranges(a: Any, number: int) -> None:
    assert a.rows(f"SELECT id FROM t WHERE b IN ({number}, 0)") == [(4,)]
    assert a.rows(f"SELECT id FROM t WHERE b <=> {number}") == []
    low, high = sorted((number, 0))
    assert sorted(a.rows(f"SELECT id FROM t WHERE b BETWEEN {low} AND {high}")) == [
        (i,) for i, b in ROWS.items() if b is not None and low <= b <= high]
