"""MATCH … AGAINST beside MariaDB's InnoDB: random texts, searches and changes, by views and one-shots."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from e2e.aggregates import beside as besides
from e2e.aggregates.beside import Beside, asked, beside
from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb

pytestmark = needs_mariadb
TABLE = ("CREATE TABLE d (id INT PRIMARY KEY, g INT, a TEXT, b VARCHAR(300), FULLTEXT KEY one (a), "
         "FULLTEXT KEY both_columns (a, b))")
WORDS = ("quick", "Quick", "fox", "foxes", "dog", "brown", "lazy", "the", "to", "café", "don't", "fo", "under_x", "42",
         "2024", "O'Brien", "aaa")
SINGLE = 1e-5  # InnoDB adds relevance in single precision, in an order that depends on the rows


def text(chance: random.Random) -> str:
    if chance.random() < 0.05:
        return "NULL"
    parts = [chance.choice(WORDS) + chance.choice((" ", " ", " ", ", ", "-", "\n", "."))
             for _ in range(chance.randrange(8))]
    return "'" + "".join(parts).replace("'", "''") + "'"


def search(chance: random.Random, boolean: bool, depth: int = 0) -> str:
    """A search.  A word occurs once: InnoDB's weights of repeated words depend on which sets of rows were empty."""
    words = iter(chance.sample(WORDS[1:], len(WORDS) - 1))

    def part(depth: int) -> str:
        kind = chance.random()
        operator = chance.choice(("", "", "+", "+", "-", "~", ">", "<")) if boolean else ""
        if boolean and depth < 2 and kind < 0.15:
            return f"{operator}({' '.join(part(depth + 1) for _ in range(chance.randint(1, 2)))})"
        if kind < 0.3:
            return f'{operator}"{next(words)} {next(words)}"'
        return operator + next(words)

    return " ".join(part(depth) for _ in range(chance.randint(1, 3))).replace("'", "''")


def change(chance: random.Random) -> str:
    at, kind = chance.randrange(20), chance.randrange(4)
    if kind == 0:
        return f"DELETE FROM d WHERE id = {at}"
    if kind == 1:
        return f"UPDATE d SET a = {text(chance)} WHERE id % 7 = {at % 7}"
    return f"REPLACE INTO d VALUES ({at}, {at % 3}, {text(chance)}, {text(chance)})"


def made_anew(both: Beside) -> None:
    """Make MariaDB's table anew: its counts have deleted rows until then."""
    for statement in ("CREATE TABLE d_new LIKE d", "INSERT INTO d_new SELECT * FROM d", "DROP TABLE d",
                      "RENAME TABLE d_new TO d"):
        assert asked(both.theirs, statement) == []
    asked(both.theirs, "ANALYZE TABLE d")  # its number of rows is an estimate


@pytest.mark.parametrize("workers", [1, 3])
def test_random_searches(maria: MariaDb, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(besides, "RELATIVE", SINGLE)
    chance = random.Random(70 + workers)
    with beside(maria, tmp_path, workers, [TABLE]) as both:
        both.write("INSERT INTO d VALUES " + ", ".join(
            f"({n}, {n % 3}, {text(chance)}, {text(chance)})" for n in range(14)))
        for _ in range(4):
            for _ in range(4):
                both.write(change(chance))
            made_anew(both)
            for _ in range(5):
                boolean = chance.random() < 0.7
                mode = " IN BOOLEAN MODE" if boolean else chance.choice(("", " IN NATURAL LANGUAGE MODE"))
                match = f"MATCH (a{chance.choice(('', ', b'))}) AGAINST ('{search(chance, boolean)}'{mode})"
                both.check(f"SELECT id FROM d WHERE {match}")
                both.check(f"SELECT id, {match} AS r FROM d WHERE {match}")
                both.check(f"SELECT id, {match} > 0.3 FROM d WHERE g = 1 AND NOT ({match})")
                both.check(f"SELECT g, COUNT(*), MAX({match}) FROM d GROUP BY g")


PREFIXES = ("fo*", "+fo* -the", "qu* do*", "+cAf*", "o'br*", "+(fo* qu*)")


def test_beginnings_of_words(maria: MariaDb, tmp_path: Path) -> None:
    chance = random.Random(5)
    with beside(maria, tmp_path, 1, [TABLE]) as both:
        for n in range(12):
            both.write(f"INSERT INTO d VALUES ({n}, 0, {text(chance)}, {text(chance)})")
        for prefix in PREFIXES:
            written = prefix.replace("'", "''")
            both.check(f"SELECT id FROM d WHERE MATCH (a) AGAINST ('{written}' IN BOOLEAN MODE)")


ERRORS = (
    "SELECT id FROM d WHERE MATCH (b) AGAINST ('x')", "SELECT id FROM d WHERE MATCH (b) AGAINST ('x' IN BOOLEAN MODE)",
    "SELECT MATCH (g) AGAINST ('x') FROM d", "SELECT MATCH (a) AGAINST (b) FROM d",
    "SELECT id FROM d WHERE MATCH (a) AGAINST (b)",
    "SELECT id FROM d WHERE MATCH (a) AGAINST ('(x' IN BOOLEAN MODE)",
    "SELECT id FROM d WHERE MATCH (a) AGAINST ('++x' IN BOOLEAN MODE)", "CREATE TABLE e (i INT, FULLTEXT (i))",
    "CREATE TABLE e (i VARBINARY(9), FULLTEXT (i))", "CREATE TABLE e (i ENUM('a'), FULLTEXT (i))",
    "CREATE TABLE e (i TEXT, FULLTEXT (j))", "CREATE FULLTEXT INDEX f ON d (g)", "CREATE FULLTEXT INDEX one ON d (b)",
    "ALTER TABLE d ADD FULLTEXT KEY f (g)", "ALTER TABLE d MODIFY a INT", "ALTER TABLE d DROP INDEX nothing",
    "CREATE TABLE e (i TEXT, s VARCHAR(9) COLLATE utf8mb4_bin, FULLTEXT (i, s))",
)


def test_errors(maria: MariaDb, tmp_path: Path) -> None:
    with beside(maria, tmp_path, 1, [TABLE]) as both:
        for statement in ERRORS:
            ours, theirs = asked(both.ours, statement), asked(both.theirs, statement)
            assert isinstance(ours, int) and ours == theirs, (statement, ours, theirs)


def keys_of(connection: Any) -> list[tuple[Any, ...]]:
    """What SHOW INDEX says of names, columns and types; nothing without the table."""
    found = asked(connection, "SHOW INDEX FROM d")
    return [] if isinstance(found, int) else [(row[2], row[3], row[4], row[5], row[10]) for row in found]


def test_definitions(maria: MariaDb, tmp_path: Path) -> None:
    with beside(maria, tmp_path, 1, [TABLE]) as both:
        for statement in (
                "ALTER TABLE d ADD FULLTEXT INDEX (b), ADD FULLTEXT KEY three (b, a)",
                "CREATE FULLTEXT INDEX four ON d (b)",
                "ALTER TABLE d DROP INDEX b", "DROP INDEX four ON d", "ALTER TABLE d RENAME INDEX three TO five",
                "ALTER TABLE d CHANGE b c VARCHAR(200)", "ALTER TABLE d MODIFY c CHAR(100)",
                "CREATE TABLE e LIKE d", "DROP TABLE d", "RENAME TABLE e TO d", "ALTER TABLE d ADD h TEXT FIRST",
                "ALTER TABLE d DROP COLUMN a", "ALTER TABLE d ADD a TEXT, ADD FULLTEXT (a)"):
            both.write(statement)
            assert keys_of(both.ours) == keys_of(both.theirs), statement
        (_, text), = asked(both.ours, "SHOW CREATE TABLE d")
        both.write("DROP TABLE d")
        assert asked(both.ours, text) == [] and asked(both.ours, "SHOW CREATE TABLE d") == [("d", text)]


def test_writes_and_parameters(maria: MariaDb, tmp_path: Path) -> None:
    with beside(maria, tmp_path, 3, [TABLE]) as both:
        both.write("INSERT INTO d VALUES (1, 0, 'quick fox', 'x'), (2, 0, 'brown fox', 'quick'), (3, 1, 'dog', NULL)")
        both.write("UPDATE d SET g = 7 WHERE MATCH (a) AGAINST ('fox') AND id > 1")
        both.check("SELECT id, g FROM d")
        for connection in (both.ours, both.theirs):
            for statement in ("PREPARE one FROM 'SELECT id FROM d WHERE MATCH (a, b) AGAINST (? IN BOOLEAN MODE)'",
                              "PREPARE two FROM 'SELECT id, MATCH (a) AGAINST (?) > 0 FROM d WHERE g = ?'",
                              "PREPARE away FROM 'DELETE FROM d WHERE MATCH (a) AGAINST (?)'",
                              "SET @quick = '+quick', @fox = 'fox', @wrong = '(x', @zero = 0"):
                assert asked(connection, statement) == []
        for query in ("SELECT id FROM d WHERE MATCH (a) AGAINST (CONCAT('f', 'ox'))",
                      "SELECT id, MATCH (a) AGAINST ('fo' 'x') > 0 FROM d",
                      "SELECT d.id, e.id FROM d LEFT JOIN d e ON e.id = d.id AND MATCH (d.a) AGAINST ('quick')",
                      "SELECT id FROM d WHERE id IN (SELECT id FROM d WHERE MATCH (a) AGAINST ('brown'))",
                      "SELECT id FROM d WHERE NOT MATCH (a) AGAINST ('brown') UNION SELECT 9"):
            both.check(query)
        for statement in ("EXECUTE one USING @quick", "EXECUTE two USING @fox, @zero", "EXECUTE one USING @wrong",
                          "SELECT id FROM d WHERE MATCH (a) AGAINST (@fox)", "EXECUTE away USING @quick"):
            ours, theirs = asked(both.ours, statement), asked(both.theirs, statement)
            assert (sorted(ours) if isinstance(ours, list) else ours) == (
                sorted(theirs) if isinstance(theirs, list) else theirs), statement
        both.check("SELECT id FROM d")


def test_an_open_transaction_finds_its_own_rows(maria: MariaDb, tmp_path: Path) -> None:
    """InnoDB finds them after COMMIT only; Noria at once."""
    with beside(maria, tmp_path, 1, [TABLE]) as both:
        both.write("INSERT INTO d VALUES (1, 0, 'quick fox', 'x')")
        for statement in ("BEGIN", "INSERT INTO d VALUES (2, 0, 'brown fox', 'x')"):
            asked(both.ours, statement)
        query = "SELECT id FROM d WHERE MATCH (a) AGAINST ('fox') ORDER BY id"
        assert asked(both.ours, query) == [(1,), (2,)]
        asked(both.ours, "ROLLBACK")
        assert asked(both.ours, query) == [(1,)]


@pytest.mark.parametrize("workers", [1, 3])
def test_natural_language_is_ordered_by_relevance(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    with beside(maria, tmp_path, workers, [TABLE]) as both:
        both.write("INSERT INTO d VALUES (1, 0, 'fox', NULL), (2, 0, 'fox fox fox', 'x'), (3, 0, 'dog', 'x'), "
                   "(4, 0, 'fox dog', 'x'), (5, 0, 'none', NULL), (6, 0, 'fox fox', NULL)")
        for query in ("SELECT id FROM d WHERE MATCH (a) AGAINST ('fox') AND g = 0 LIMIT 2",
                      "SELECT id, g FROM d WHERE g < 3 AND MATCH (a) AGAINST ('fox dog') LIMIT 1 OFFSET 1"):
            for one_shot in (False, True):
                with both.server.answering(one_shot=one_shot):
                    assert asked(both.ours, query) == asked(both.theirs, query)
        for connection in (both.ours, both.theirs):
            asked(connection, "PREPARE p FROM 'SELECT id FROM d WHERE MATCH (a) AGAINST (?) LIMIT 2'")
            asked(connection, "SET @fox = 'fox'")
        assert asked(both.ours, "EXECUTE p USING @fox") == asked(both.theirs, "EXECUTE p USING @fox") == [(2,), (6,)]


def test_views_keep_their_keys_and_survive_a_restart(tmp_path: Path) -> None:
    """A FULLTEXT key that a named view needs stays; the view follows renamed and new columns."""
    searched = "SELECT id FROM d WHERE MATCH (b) AGAINST ('quick')"
    server = LocalServer(tmp_path / "data", workers=1)
    with closing(server.connect()) as ours:
        for text in ("CREATE TABLE d (id INT PRIMARY KEY, a TEXT, b TEXT, FULLTEXT x (a), FULLTEXT y (b))",
                     "INSERT INTO d VALUES (1, 'quick fox', 'x'), (2, 'dog', 'quick')",
                     "CREATE VIEW v AS SELECT id, MATCH (a) AGAINST ('fox') AS r FROM d "
                     "WHERE MATCH (a) AGAINST ('quick')",
                     "ALTER TABLE d ADD COLUMN c INT FIRST", "ALTER TABLE d RENAME COLUMN a TO a2"):
            assert asked(ours, text) == [], text
        for _ in range(3):
            assert asked(ours, searched) == [(2,)]
        assert asked(ours, "ALTER TABLE d DROP INDEX x") == 3730
        assert asked(ours, "ALTER TABLE d DROP INDEX x, ADD FULLTEXT z (a2), DROP INDEX y") == []
        assert asked(ours, searched) == 1191
        before = asked(ours, "SELECT * FROM v")
    server.close()
    server = LocalServer(tmp_path / "data", workers=1)
    with closing(server.connect()) as ours:
        assert asked(ours, "SELECT * FROM v") == before and len(before) == 1
        assert asked(ours, "INSERT INTO d VALUES (7, 3, 'quick quick', '')") == []
        assert [row[0] for row in asked(ours, "SELECT * FROM v ORDER BY id")] == [1, 3]
        assert asked(ours, searched) == 1191
        assert asked(ours, "ALTER TABLE d DROP INDEX z") == 3730
    server.close()
