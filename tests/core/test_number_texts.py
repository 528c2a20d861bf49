"""The texts of numbers, as MySQL and MariaDB print them; the same in a result and in a text made of the number."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noria
from e2e.mariadb import INSTALLED, MariaDb
from noria.core.expressions.coerce import show_double
from noria.core.types import DOUBLE, Field
from noria.server.mysql import rows


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_read_back(value: float) -> None:
    assert float(show_double(value)) == value


@pytest.mark.parametrize(("value", "shown"), [
    (0.0, "0"), (1.0, "1"), (-1.5, "-1.5"), (0.1, "0.1"), (1e14, "100000000000000"), (1e15, "1e15"),
    (1.5e15, "1.5e15"), (123456789012345680.0, "1.2345678901234568e17"), (1e-4, "0.0001"), (1e-5, "0.00001"),
    (1e-15, "0.000000000000001"), (1e-16, "1e-16"), (-2.5e-7, "-0.00000025"), (1e300, "1e300"),
    (999999999999999.9, "999999999999999.9"), (4432483935774388.5, "4432483935774388.5"),
    (1234567890123456.0, "1.234567890123456e15"), (1.7976931348623157e308, "1.7976931348623157e308"),
    (5e-324, "5e-324"), (1.5e-10, "0.00000000015"), (1894074821961724.8, "1894074821961724.8"),
])
def test_doubles_look_as_mysql_prints_them(value: float, shown: str) -> None:
    assert show_double(value) == shown


def test_a_double_is_one_text_everywhere(tmp_path: Path) -> None:
    values = [1e15, 1894074821961724.8, -4139911918844640.5, 1.5e-10, 1e-15, 2e-16]
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE n (id INT PRIMARY KEY, d DOUBLE, written VARCHAR(40))")
        for at, value in enumerate(values):
            db.sql("INSERT INTO n VALUES (?, ?, ?)", [at, value, value])
        said = [tuple(r) for r in db.sql("SELECT id, CAST(d AS CHAR), CONCAT(d), written, d FROM n").rows]
    field = [Field("d", DOUBLE)]
    for at, *texts, value in said:
        assert value == values[at] and texts == [show_double(value)] * 3
        assert show_double(value).encode() in rows.encode_result(field, [(value,)], False, True)


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
def test_doubles_and_floats_of_every_size_as_mariadb_prints_them(tmp_path: Path) -> None:
    drawn = random.Random(7)
    sizes = [*range(-307, 308, 3), *[n for n in range(-20, 20) for _ in range(12)]]
    values = [0.0] + [drawn.choice((1, -1)) * float(f"{drawn.randrange(1, 10 ** drawn.randint(1, 17))}e{size}")
                      for size in sizes]
    values = [v for v in values if abs(v) < 1e307 and (v == 0 or abs(v) > 1e-306)]
    values += [drawn.uniform(1e14, 2e16) for _ in range(300)]
    singles = [v if 1e-30 < abs(v) < 1e30 else 1.5 for v in values]
    oracle = MariaDb(tmp_path)
    try:
        with oracle.connect() as connection, connection.cursor() as cursor, noria.open(tmp_path / "data") as db:
            cursor.execute("CREATE TABLE n (id INT PRIMARY KEY, d DOUBLE, f FLOAT)")
            db.sql("CREATE TABLE n (id INT PRIMARY KEY, d DOUBLE, f FLOAT)")
            written = "INSERT INTO n VALUES " + ", ".join(
                f"({at}, {d!r}, {f!r})" for at, (d, f) in enumerate(zip(values, singles, strict=True)))
            cursor.execute(written)
            db.sql(written)
            asked = "SELECT id, d, CAST(d AS CHAR), CONCAT(d), CAST(f AS CHAR), CONCAT(f, '') FROM n ORDER BY id"
            cursor.execute(asked)
            told = cursor.fetchall()
            cursor.execute("SELECT CONCAT('', d), f FROM n ORDER BY id")
            shown = [d for d, _ in cursor.fetchall()]
            said = [tuple(r) for r in db.sql(asked).rows]
            assert [r[2] for r in told] == shown == [show_double(v) for v in values]
            assert said == list(told)
    finally:
        oracle.close()
