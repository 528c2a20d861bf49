"""Mutated statements: words are replaced, added, left out, or moved between statements.  Each is answered or refused
with an error of its own; none is a defect.

`NORIA_MUTATIONS` statements; `NORIA_MUTATION_SEED` names another run.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import noria
from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from server.sessions.connection import Connection

MUTATIONS, SEED = int(os.environ.get("NORIA_MUTATIONS", "1000")), int(os.environ.get("NORIA_MUTATION_SEED", "7"))
SCHEMA = (
    "CREATE TABLE author (id INT PRIMARY KEY, name VARCHAR(20), posts INT NOT NULL DEFAULT 0)",
    "CREATE TABLE post (id INT AUTO_INCREMENT PRIMARY KEY, author INT, title VARCHAR(20), score DECIMAL(6,2),"
    " at DATETIME)",
    "CREATE VIEW counted AS SELECT COUNT(*) AS n FROM post WHERE author = ?",
    "INSERT INTO author (id, name) VALUES (1, 'Ann'), (2, 'Bob')",
    "INSERT INTO post (author, title, score) VALUES (1, 'one', 1.5), (2, 'two', NULL), (NULL, 'three', 3)",
)
STATEMENTS = (
    "INSERT INTO author SELECT id + 10, title, author FROM post WHERE id < 3 ORDER BY id",
    "INSERT IGNORE INTO author (id, name) SELECT id, 'x' FROM post UNION ALL SELECT id, name FROM author",
    "INSERT INTO author (id, posts) SELECT author, COUNT(*) FROM post GROUP BY author ON DUPLICATE KEY UPDATE posts = "
    "VALUES(posts) + 1",
    "REPLACE INTO post (id, title) SELECT id, name FROM author", "INSERT INTO post (author, title) VALUES (1, UUID())",
    "INSERT INTO post (author, score) VALUES ((SELECT MAX(id) FROM author), RAND())",
    "INSERT INTO post (title) SELECT 'x' FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM post WHERE title = 'x')",
    "UPDATE author SET posts = (SELECT COUNT(*) FROM post WHERE post.author = author.id) WHERE id IN (1, 2)",
    "UPDATE post JOIN author ON author.id = post.author SET post.title = author.name, post.score = DEFAULT",
    "UPDATE post p LEFT JOIN author AS a ON a.id = p.author SET p.score = 0 WHERE a.id IS NULL",
    "UPDATE post SET title = UPPER(title) WHERE author = @n ORDER BY score DESC, id LIMIT 1",
    "DELETE FROM post WHERE author NOT IN (SELECT id FROM author) ORDER BY id LIMIT 2",
    "DELETE p FROM post p JOIN author a ON a.id = p.author WHERE a.name = 'Ann'",
    "DELETE FROM p, a USING post AS p INNER JOIN author AS a ON a.id = p.author WHERE a.id = 2",
    "WITH w AS (SELECT id FROM post) UPDATE post JOIN w ON w.id = post.id SET title = 'w'",
    "SELECT EXISTS(SELECT 1 FROM post WHERE id = @n), (SELECT MAX(id) FROM author) + 1, @n IN (SELECT id FROM post)",
    "SELECT n FROM counted WHERE author = 1", "SELECT id, @n FROM post WHERE id = LAST_INSERT_ID() OR author = @n",
    "SELECT CONVERT_TZ(at, 'UTC', 'Asia/Tokyo'), ANY_VALUE(title) FROM post GROUP BY at",
    "CREATE TABLE x LIKE post", "CREATE TABLE IF NOT EXISTS y AS SELECT id, title AS t FROM post", "DROP TABLE x, y",
    "PREPARE p FROM 'SELECT id FROM post WHERE id = ?'", "EXECUTE p USING @n", "DEALLOCATE PREPARE p", "SET @n = 2",
    "ANALYZE TABLE post, author",
)
WORD = re.compile(r"'[^']*'|@?\w+|[^\s\w]")


def mutated(chance: random.Random, words: list[str]) -> str:
    parts = WORD.findall(chance.choice(STATEMENTS))
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(parts))
        kind = chance.randrange(4)
        if kind == 0:
            parts[at] = chance.choice(words)
        elif kind == 1:
            parts.insert(at, chance.choice(words))
        elif kind == 2 and len(parts) > 2:
            del parts[at]
        else:
            other = WORD.findall(chance.choice(STATEMENTS))
            start = chance.randrange(len(other))
            parts[at:at] = other[start : start + chance.randint(1, 8)]
    return " ".join(parts).replace(" .", ".").replace(". ", ".")


def test_no_mutated_statement_is_a_defect(tmp_path: Path) -> None:
    chance, words = random.Random(SEED), sorted({w for s in STATEMENTS for w in WORD.findall(s)})
    answered = 0
    with noria.open(tmp_path / "data") as db:
        a: Any = Connection(db)
        for text in SCHEMA:
            a.sql(text)
        for n in range(MUTATIONS):
            text = mutated(chance, words)
            try:
                a.sql(text)
                answered += 1
            except SqlError as e:
                assert e.code != UNKNOWN_ERROR.number, (text, e.message)
            if n % 100 == 99:
                a.code("DELETE FROM post ORDER BY id DESC LIMIT 500")
                a.code("DELETE FROM author WHERE id > 2")
    assert answered > MUTATIONS // 5, "most are no statements at all"
