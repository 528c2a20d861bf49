"""Deep, long and odd statements, drawn at random: each is answered or is an SqlError, nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import noria
from noria.core.errors import SqlError
from seeds import seed

CASES = 250


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    db = noria.open(tmp_path_factory.mktemp("odd") / "data")
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(40), d DATETIME, x TIME, n DECIMAL(10,2))")
    db.sql("INSERT INTO t VALUES (1, 1, 'x', '2024-01-01', '10:00:00', 1.5)")
    yield db
    db.close()


def chain(operator: str, term: str = "a") -> Callable[[int], str]:
    return lambda n: f"SELECT {operator.join([term] * (n + 1))} FROM t WHERE id = 1"


def nested(before: str, after: str, inner: str = "a") -> Callable[[int], str]:
    return lambda n: f"SELECT {before * n}{inner}{after * n} FROM t WHERE id = 1"


def listed(text: str, item: Callable[[int], str], separator: str = ", ") -> Callable[[int], str]:
    return lambda n: text.format(separator.join(item(i) for i in range(n + 1)))


GROWING: dict[str, Callable[[int], str]] = {
    **{f"chain{op}": chain(op) for op in ("+", "-", " * ", " AND ", " OR ", " XOR ", " || ", " = ", " | ", " << ", " DIV ")},
    "parentheses": nested("(", ")"), "function": nested("ABS(", ")"), "if": nested("IF(a, 1, ", ")"),
    "case": nested("CASE WHEN a = 1 THEN ", " END"), "not": nested("NOT ", ""), "minus": nested("- ", ""),
    "coalesce": nested("COALESCE(NULL, ", ")"), "concat": nested("CONCAT('x', ", ")", "s"), "is null": nested("", " IS NULL"),
    "like": nested("", " LIKE 'x'", "s"), "interval": nested("", " + INTERVAL 1 DAY", "d"), "path": nested("", "->'$.a'", "s"),
    "scalar": nested("(SELECT MAX(a) FROM t WHERE a = ", ")", "1"), "between": nested("", " BETWEEN 1 AND 2"),
    "json": lambda n: f"SELECT JSON_EXTRACT('{'[' * n}{']' * n}', '$') FROM t WHERE id = 1",
    "path of json": lambda n: "SELECT JSON_EXTRACT('[]', '$" + "[0]" * n + "') FROM t WHERE id = 1",
    "derived": lambda n: "SELECT a FROM " + "(SELECT a FROM " * n + "t" + "".join(f") AS x{i}" for i in range(n)),
    "exists": lambda n: "SELECT a FROM t WHERE " + "EXISTS (SELECT 1 FROM t WHERE " * n + "a = 1" + ")" * n,
    "in nested": lambda n: "SELECT a FROM t WHERE " + "a IN (SELECT a FROM t WHERE " * n + "a = 1" + ")" * n,
    "union": lambda n: " UNION ALL ".join(["SELECT a FROM t"] * (n + 1)),
    "in": listed("SELECT id FROM t WHERE id IN ({})", str), "texts": listed("SELECT id FROM t WHERE s IN ({})", lambda i: f"'{i}'"),
    "ors": listed("SELECT id FROM t WHERE {}", lambda i: f"a = {i}", " OR "),
    "ands": listed("SELECT id FROM t WHERE {}", lambda i: f"a <> {i + 2}", " AND "),
    "columns": listed("SELECT {} FROM t WHERE id = 1", lambda i: f"a + {i}"),
    "rows": listed("INSERT INTO t (id) VALUES {} ON DUPLICATE KEY UPDATE a = a", lambda i: f"({i + 100})"),
    "set": lambda n: "UPDATE t SET a = " + "+".join(["a"] * (n + 1)) + " WHERE id = 77",
    "delete": lambda n: "DELETE FROM t WHERE id = 77 AND (" + " OR ".join(f"a + {i} = 3" for i in range(n + 1)) + ")",
    "digits": lambda n: f"SELECT {'9' * n} FROM t WHERE id = 1", "limit": lambda n: f"SELECT id FROM t LIMIT {'9' * n}",
    "offset": lambda n: f"SELECT id FROM t ORDER BY id LIMIT 1 OFFSET {'9' * n}", "key": lambda n: f"SELECT id FROM t WHERE id = {'9' * n}",
    "insert": lambda n: f"INSERT INTO t (id) VALUES ({'9' * n}0)", "exponent": lambda n: f"SELECT 1e{n}, 1e-{n}, id FROM t WHERE id = 1",
    "hex": lambda n: f"SELECT 0x{'f' * n} FROM t WHERE id = 1", "name": lambda n: f"SELECT {'x' * n} FROM t",
    "alias": lambda n: f"SELECT a AS x{'x' * n} FROM t WHERE id = 1", "column": lambda n: f"CREATE TABLE t (x{'x' * n} INT)",
    "semicolons": lambda n: "SELECT 1" + ";" * n, "comment": lambda n: "SELECT 1 " + "/* */" * n, "open": lambda n: "(" * n,
    "selects": lambda n: "SELECT " * n, "dots": lambda n: "SELECT a" + ".a" * n + " FROM t", "at": lambda n: "SELECT @" + "@" * n,
    "round": lambda n: f"SELECT ROUND(n, {n}), ROUND(a, -{n}), TRUNCATE(n, -{n}) FROM t WHERE id = 1",
    "date": lambda n: f"SELECT d + INTERVAL {'9' * (n % 30 + 1)} DAY FROM t WHERE id = 1",
    "joins": lambda n: "SELECT t0.a FROM t AS t0" + "".join(f" JOIN t AS t{i} USING (id)" for i in range(1, n + 2)) if n < 5 or n > 61
    else "SELECT 1",
}
ODD = ["\0", "a\0b", "\ud800", "x\udfff", "\ufdd0", "\u0301", "''", "'", '"', "`", "\\", "--", "/*", "#", "%", "_", "?", ";", "(", ")",
       ",", "SELECT", "NULL", "0x", "b'", "1e", "@", "@@", ":=", "->", "..", "𝔘", "\u202e", "\x1a"]
VALUES: list[Any] = [None, 0, -1, 2**63, -2**63, 2**64, 10**400, float("nan"), float("inf"), -0.0, 1e308, "", "x" * 70_000, "\0",
                     "\ud800", b"\xff", b"", Decimal("NaN"), Decimal("Infinity"), Decimal("1e400"), Decimal("0." + "1" * 60),
                     timedelta(days=9999), [], [1], {}, {"a": 1}, ([],), object(), True, "2024-13-99", "99999:99:99", "-838:59:60"]
ASKED = ["SELECT id FROM t WHERE {} = ?", "SELECT {} + ? FROM t", "INSERT INTO t (id, {}) VALUES (5, ?)", "SELECT ?, {} FROM t",
         "UPDATE t SET {} = ? WHERE id = 77", "SELECT id FROM t WHERE {} > ?", "SELECT id FROM t WHERE {} IN (?, 3)",
         "SELECT id FROM t ORDER BY {} LIMIT ?", "DELETE FROM t WHERE {} = ? AND id = 77", "SELECT id FROM t WHERE {} LIKE ?"]


def wrong(db: Any, text: str, values: list[Any] | None = None) -> str:
    """What is neither an answer nor an SqlError; "" for these."""
    try:
        db.sql(text, values or [])
    except SqlError:
        return ""
    except BaseException as e:
        return f"{type(e).__name__}: {e}"[:200] + f" of {text[:100]!r} {str(values)[:60]}"
    return ""


@pytest.mark.parametrize("what", GROWING)
def test_whatever_grows_is_answered_or_refused(db: Any, what: str) -> None:
    assert [w for n in (3, 40, 130, 700) if (w := wrong(db, GROWING[what](n)))] == []


def test_five_thousand(db: Any) -> None:
    for what in ("chain+", "ors", "ands", "in", "parentheses", "function", "union", "digits", "limit", "key", "insert"):
        assert wrong(db, GROWING[what](5_000)) == "", what
    assert db.sql(GROWING["ors"](2_000)).rows == [(1,)]


def test_odd_values_of_parameters(db: Any) -> None:
    found = [w for text in ASKED for column in ("id", "a", "s", "d", "x", "n") for v in VALUES
             if (w := wrong(db, text.format(column), [v]))]
    assert found == []


@pytest.mark.parametrize("text", [
    "SELECT a FROM ..t", "SELECT a FROM t JOIN ..t", "SELECT a FROM (SELECT a FROM ..t) AS x", "INSERT INTO ..t (id) VALUES (9)",
    "UPDATE ..t SET a = 1", "DELETE FROM ..t", "DROP TABLE ..t", "CREATE TABLE ..t2 (a INT)", "TRUNCATE ..t"])
def test_a_name_that_lacks_its_database(db: Any, text: str) -> None:
    with pytest.raises(SqlError, match="lacks a part"):
        db.sql(text)


def test_odd_texts(db: Any) -> None:
    rng, texts = random.Random(seed()), [make(3) for make in GROWING.values()]
    for _ in range(CASES):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(ODD) + text[at + rng.choice((0, 0, 1, 5)):]
        assert wrong(db, text) == "", repr(text)
