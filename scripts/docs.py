"""Writes docs/sql.md and docs/reference.md from the program itself: `make docs`.

What the SQL page says of an example is what the planner did with it just now, in a database of this process; the
evaluator's table of operations is listed by name.  `tests/test_docs.py` fails while a page is stale.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import typer.main

import noria
from noria.client import Database
from noria.core import limits
from noria.core.errors import SqlError
from noria.core.expressions.functions.base import TYPING
from noria.core.expressions.functions.failing import INTERNAL
from noria.core.expressions.library import LIBRARY
from noria.server.http.app import Api
from noria.server.http.metrics import (
    DESCRIPTIONS,
    FOLLOW_DESCRIPTIONS,
    FRONT_END_DESCRIPTIONS,
    NODE_DESCRIPTIONS,
)
from noria.server.sessions.inspection import _FUNCTIONS as SESSION_FUNCTIONS
from noria.server.sessions.inspection import _SHOW, VARIABLES
from noria.sql.statements.session import _SHOWS

PAGES = Path(__file__).parent.parent / "docs"
SCHEMA = (
    "CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(80), score DECIMAL(8,2), weight DOUBLE, "
    "posted DATE, changed DATETIME)",
    "CREATE TABLE votes (story INT, user INT, up INT NOT NULL, PRIMARY KEY (story, user))",
    "CREATE TABLE tags (story INT, tag VARCHAR(20))",
    "CREATE VIEW counted AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story",
)
QUERIES: dict[str, dict[str, str]] = {
    "Selection and projection": {
        "by key": "SELECT * FROM stories WHERE id = ?",
        "by any columns": "SELECT title FROM stories WHERE author = ? AND posted = ?",
        "conditions beside": "SELECT title FROM stories WHERE author = ? AND (score > 1 OR title LIKE 'a%')",
        "without a parameter": "SELECT id, title FROM stories WHERE score > 10",
        "computed columns": "SELECT id, score * 2 AS twice, CONCAT(title, '!') FROM stories WHERE id = ?",
        "computed parameter": "SELECT id FROM stories WHERE author + 1 = ?",
        "another view": "SELECT n FROM counted WHERE story = ?",
        "DISTINCT": "SELECT DISTINCT tag FROM tags WHERE story = ?",
    },
    "Parameters": {
        "IN (?, …)": "SELECT title FROM stories WHERE author IN (?, ?)",
        "NULL-safe": "SELECT title FROM stories WHERE author <=> ?",
        "range": "SELECT title FROM stories WHERE score > ?",
        "key and range": "SELECT title FROM stories WHERE author = ? AND score BETWEEN ? AND ?",
        "LIKE ?": "SELECT title FROM stories WHERE author = ? AND title LIKE ?",
        "in HAVING": "SELECT author, COUNT(*) AS n FROM stories GROUP BY author HAVING n = ?",
        "both sides of a join": "SELECT title FROM stories JOIN votes ON votes.story = stories.id WHERE author = ? AND"
                                " user = ?",
        "in LIMIT and OFFSET": "SELECT title FROM stories WHERE author = ? ORDER BY id LIMIT ? OFFSET ?",
    },
    "Joins": {
        "inner": "SELECT title, n FROM stories JOIN counted ON counted.story = stories.id WHERE stories.id = ?",
        "left": "SELECT title, n FROM stories LEFT JOIN counted ON counted.story = stories.id WHERE stories.id = ?",
        "right": "SELECT user, title FROM stories RIGHT JOIN votes ON votes.story = stories.id WHERE user = ?",
        "cross": "SELECT stories.id, tag FROM stories CROSS JOIN tags WHERE author = ?",
        "further conditions": "SELECT title, user FROM stories LEFT JOIN votes ON votes.story = stories.id AND"
                              " votes.up > 0 AND votes.user > stories.author WHERE stories.id = ?",
        "no equality": "SELECT a.id, b.id FROM stories a JOIN stories b ON a.score < b.score",
        "self-join": "SELECT a.title, b.title FROM stories a JOIN stories b ON a.author = b.author WHERE a.id = ?",
        "NATURAL": "SELECT * FROM votes NATURAL JOIN tags",
    },
    "Aggregates": {
        "COUNT, SUM, AVG, MIN, MAX": "SELECT author, COUNT(*), COUNT(score), SUM(score), AVG(score), MIN(score),"
                                     " MAX(title) FROM stories WHERE author = ? GROUP BY author",
        "of everything": "SELECT COUNT(*), MAX(score) FROM stories",
        "without GROUP BY, by key": "SELECT COUNT(*), SUM(up) FROM votes WHERE story = ?",
        "conditional": "SELECT story, SUM(CASE WHEN up > 0 THEN 1 ELSE 0 END) FROM votes WHERE story = ? GROUP BY"
                       " story",
        "DISTINCT inside": "SELECT story, COUNT(DISTINCT user), SUM(up) FROM votes WHERE story = ? GROUP BY story",
        "GROUP_CONCAT": "SELECT story, GROUP_CONCAT(DISTINCT tag ORDER BY tag SEPARATOR ' ') FROM tags WHERE story = ?"
                        " GROUP BY story",
        "HAVING": "SELECT author, COUNT(*) FROM stories GROUP BY author HAVING COUNT(*) > 1",
        "of an expression": "SELECT YEAR(posted), COUNT(*) FROM stories GROUP BY YEAR(posted)",
        "WITH ROLLUP": "SELECT author, COUNT(*) FROM stories GROUP BY author WITH ROLLUP",
        "STDDEV": "SELECT author, STDDEV(score) FROM stories GROUP BY author",
    },
    "Order and limit": {
        "per key": "SELECT title FROM stories WHERE author = ? ORDER BY score DESC, id LIMIT 3",
        "of everything": "SELECT id, title FROM stories ORDER BY score DESC, id LIMIT 10",
        "with OFFSET": "SELECT id FROM stories WHERE author = ? ORDER BY id LIMIT 3 OFFSET 3",
        "in a derived table": "SELECT q.id FROM (SELECT id, score FROM stories ORDER BY score DESC, id LIMIT 10) q"
                              " WHERE q.score > 0",
    },
    "Set operations": {
        "UNION ALL": "SELECT id FROM stories WHERE author = ? UNION ALL SELECT story FROM votes WHERE user = ?",
        "UNION": "SELECT author FROM stories UNION SELECT user FROM votes",
        "INTERSECT": "SELECT author FROM stories INTERSECT SELECT user FROM votes",
        "EXCEPT": "SELECT author FROM stories EXCEPT SELECT user FROM votes",
    },
    "Subqueries": {
        "derived table": "SELECT q.n FROM (SELECT story, COUNT(*) AS n FROM votes GROUP BY story) q WHERE q.story = ?",
        "WITH": "WITH q AS (SELECT story, COUNT(*) AS n FROM votes GROUP BY story) SELECT n FROM q WHERE story = ?",
        "IN": "SELECT title FROM stories WHERE author = ? AND id IN (SELECT story FROM votes)",
        "NOT IN": "SELECT title FROM stories WHERE author = ? AND id NOT IN (SELECT story FROM votes)",
        "EXISTS": "SELECT title FROM stories WHERE author = ? AND EXISTS (SELECT 1 FROM votes WHERE"
                  " votes.story = stories.id)",
        "NOT EXISTS": "SELECT title FROM stories WHERE author = ? AND NOT EXISTS (SELECT 1 FROM votes WHERE"
                      " votes.story = stories.id)",
        "scalar": "SELECT id FROM stories WHERE score > (SELECT AVG(score) FROM stories)",
        "scalar, correlated": "SELECT id, (SELECT COUNT(*) FROM votes WHERE votes.story = stories.id) FROM stories"
                              " WHERE id = ?",
        "correlated by any condition": "SELECT title FROM stories WHERE author = ? AND EXISTS (SELECT 1 FROM votes "
                                       "WHERE votes.story = stories.id AND votes.user <> stories.author)",
        "recursive": "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    },
    "Window functions": {
        "ROW_NUMBER": "SELECT id, ROW_NUMBER() OVER (PARTITION BY author ORDER BY score, id) FROM stories WHERE"
                      " author = ?",
        "RANK, DENSE_RANK": "SELECT id, RANK() OVER (PARTITION BY author ORDER BY score), DENSE_RANK() OVER (PARTITION"
                            " BY author ORDER BY score) FROM stories WHERE author = ?",
        "aggregate over a partition": "SELECT id, SUM(score) OVER (PARTITION BY author) FROM stories WHERE author = ?",
        "running aggregate": "SELECT id, SUM(score) OVER (PARTITION BY author ORDER BY id) FROM stories WHERE"
                             " author = ?",
        "LAG": "SELECT id, LAG(score) OVER (PARTITION BY author ORDER BY id) FROM stories WHERE author = ?",
    },
    "Locks and the like": {
        "FOR UPDATE": "SELECT * FROM stories WHERE id = ? FOR UPDATE",
        "the clock": "SELECT id FROM stories WHERE changed > NOW()",
        "chance": "SELECT id FROM stories ORDER BY RAND() LIMIT 1",
    },
}
EXPRESSIONS = (
    "author + 1", "author - 1", "author * 2", "score / 3", "author DIV 2", "author % 2", "-author",
    "author = 1", "author <> 1", "author < 1", "author <=> NULL", "author IN (1, 2)", "author BETWEEN 1 AND 2",
    "author IS NULL", "author IS TRUE", "title LIKE 'a%'", "title REGEXP '^a'", "author AND id",
    "author OR id", "author XOR id", "NOT author", "author & 1", "author << 1",
    "CASE author WHEN 1 THEN 'a' ELSE 'b' END", "IF(author, 1, 2)", "COALESCE(author, 0)", "IFNULL(author, 0)",
    "NULLIF(author, 0)", "GREATEST(author, id)", "LEAST(author, id)", "ABS(author)", "SIGN(author)",
    "ROUND(score, 1)", "TRUNCATE(score, 1)", "FLOOR(score)", "CEILING(score)", "MOD(author, 2)",
    "POW(weight, 2)", "SQRT(weight)", "EXP(weight)", "LN(weight)", "LOG10(weight)", "SIN(weight)",
    "CONCAT(title, '!')", "CONCAT_WS('-', title, author)", "LENGTH(title)", "CHAR_LENGTH(title)",
    "UPPER(title)", "LOWER(title)", "TRIM(title)", "LTRIM(title)", "RTRIM(title)", "LEFT(title, 2)",
    "RIGHT(title, 2)", "SUBSTRING(title, 2, 3)", "REPLACE(title, 'a', 'b')", "REPEAT(title, 2)",
    "REVERSE(title)", "LPAD(title, 9, '.')", "RPAD(title, 9, '.')", "INSTR(title, 'a')", "LOCATE('a', title)",
    "FIELD(title, 'a', 'b')", "HEX(author)", "MD5(title)", "SUBSTRING_INDEX(title, ' ', 1)", "YEAR(posted)",
    "MONTH(posted)", "DAY(posted)", "HOUR(changed)", "MINUTE(changed)", "SECOND(changed)", "WEEKDAY(posted)",
    "DAYOFWEEK(posted)", "DAYOFYEAR(posted)", "QUARTER(posted)", "LAST_DAY(posted)", "DATE(changed)",
    "DATEDIFF(posted, changed)", "posted + INTERVAL 1 DAY", "DATE_ADD(changed, INTERVAL 2 HOUR)",
    "DATE_SUB(posted, INTERVAL 1 MONTH)", "DATE_FORMAT(changed, '%Y-%m')", "UNIX_TIMESTAMP(changed)",
    "FROM_UNIXTIME(author)", "TIMESTAMPDIFF(DAY, posted, changed)", "STR_TO_DATE(title, '%Y')",
    "CAST(title AS SIGNED)", "CAST(author AS CHAR)", "CAST(title AS DECIMAL(8,2))", "CAST(title AS DATE)",
    "CAST(author AS DOUBLE)", "title COLLATE utf8mb4_bin = 'a'", "JSON_EXTRACT(title, '$.a')",
    "JSON_UNQUOTE(JSON_EXTRACT(title, '$.a'))", "UUID()",
)
TYPES = (
    "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "INT UNSIGNED", "BIGINT UNSIGNED", "BOOLEAN",
    "BIT(8)", "DECIMAL(18,4)", "DECIMAL(30,10)", "FLOAT", "DOUBLE", "CHAR(10)", "VARCHAR(255)", "TEXT",
    "MEDIUMTEXT", "BINARY(16)", "VARBINARY(255)", "BLOB", "ENUM('a', 'b')", "SET('a', 'b')", "DATE",
    "DATETIME", "DATETIME(6)", "TIMESTAMP", "TIME", "YEAR", "JSON", "GEOMETRY",
)
STATEMENTS = (
    "CREATE TABLE z (id INT PRIMARY KEY AUTO_INCREMENT, a INT NOT NULL DEFAULT 1, UNIQUE KEY (a))",
    "DROP TABLE IF EXISTS z", "CREATE TABLE z (a INT, FOREIGN KEY (a) REFERENCES stories (id))",
    "CREATE TABLE z (a INT CHECK (a > 0))",
    "CREATE VIEW z AS SELECT author, COUNT(*) AS n FROM stories GROUP BY author", "DROP VIEW IF EXISTS z",
    "CREATE ALGORITHM=UNDEFINED DEFINER=root SQL SECURITY DEFINER VIEW z AS SELECT tag FROM tags", "DROP VIEW z",
    "CREATE VIEW z AS SELECT 1 AS a, NULL AS b", "DROP VIEW z",
    "CREATE MATERIALIZED VIEW z AS SELECT author, COUNT(*) AS n FROM stories GROUP BY author", "DROP VIEW z",
    "CREATE INTERNAL VIEW z AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story", "DROP VIEW z",
    "CREATE INDEX i ON stories (author)", "ALTER TABLE stories ADD INDEX k (score), RENAME INDEX i TO j",
    "DROP INDEX j ON stories", "ALTER TABLE stories ALTER title SET DEFAULT 'none'",
    "ALTER TABLE stories AUTO_INCREMENT = 100", "CREATE UNIQUE INDEX i ON stories (author)",
    "ALTER TABLE stories ADD COLUMN x INT NOT NULL DEFAULT 5 AFTER id", "ALTER TABLE stories DROP COLUMN x",
    "ALTER TABLE stories RENAME COLUMN score TO points",
    "ALTER TABLE stories MODIFY title VARCHAR(100) NOT NULL DEFAULT '' FIRST",
    "ALTER TABLE stories CHANGE points score BIGINT AFTER title", "ALTER TABLE stories ADD UNIQUE u (title)",
    "ALTER TABLE stories DROP INDEX u, DROP CONSTRAINT i",
    "RENAME TABLE tags TO labels", "ALTER TABLE labels RENAME TO tags", "ALTER TABLE stories DROP PRIMARY KEY",
    "ALTER TABLE stories ADD PRIMARY KEY (title)",
    "ALTER TABLE stories DROP PRIMARY KEY, ADD PRIMARY KEY (id)", "ALTER TABLE stories ADD (z INT UNIQUE, y INT)",
    "ALTER TABLE stories RENAME COLUMN z TO y, RENAME COLUMN y TO z",
    "ALTER TABLE stories CONVERT TO CHARACTER SET utf8mb4, ENGINE = InnoDB",
    "ALTER TABLE stories ADD FOREIGN KEY (author) REFERENCES users (id)",
    "ALTER TABLE stories ADD n INT AUTO_INCREMENT UNIQUE",
    "TRUNCATE TABLE tags",
    "INSERT INTO stories (id, author) VALUES (1, 1), (2, 1)", "INSERT IGNORE INTO stories (id) VALUES (1)",
    "REPLACE INTO stories (id, author) VALUES (1, 2)",
    "INSERT INTO stories (id) VALUES (1) ON DUPLICATE KEY UPDATE author = author + 1",
    "INSERT INTO tags SELECT id, title FROM stories", "UPDATE stories SET author = author + 1 WHERE id > 0",
    "UPDATE stories SET author = 1 ORDER BY id LIMIT 1", "DELETE FROM stories WHERE author = 2",
    "DELETE FROM stories ORDER BY id LIMIT 1",
    "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()", "BEGIN", "COMMIT",
    "ROLLBACK", "SAVEPOINT s",
    "SET time_zone = '+00:00'", "LOAD DATA INFILE 'f' INTO TABLE stories", "CALL p()", "GRANT ALL ON *.* TO x",
    "LOCK TABLES stories READ",
)


# ---------------------------------------------------------------- what the planner says
class Asked:
    """A database of this process that is asked how it would answer."""

    def __init__(self, db: Database):
        self._db = db

    def query(self, text: str) -> tuple[str, str]:
        """(maintained, by Spark or refused, why)."""
        try:
            asked = [1] * text.count("?")
            lines = [r[0] for r in self._db.sql(f"EXPLAIN {text}", asked).rows]
        except SqlError as e:
            return "refused", _reason(e.message)
        first, last = lines[0], [line for line in lines if re.match(r"(n\d+: )?reader", line)]
        if not last:
            return "by Spark", _reason(first.partition("not by a view:")[2])
        if "| full: " in last[0]:
            return "full", last[0].partition("| full: ")[2].partition(" |")[0].partition("; filled")[0]
        return "partial", "by " + first.partition("looked up by (")[2].partition(")")[0]

    def expression(self, text: str) -> tuple[str, str]:
        how, why = self.query(f"SELECT {text} FROM stories WHERE id = ?")
        return ("maintained", "") if how in ("partial", "full") else (how, why)

    def statement(self, text: str) -> tuple[str, str]:
        try:
            warnings = self._db.sql(text).warnings
        except SqlError as e:
            return "refused", _reason(e.message)
        return "there", "; ".join(w[2] for w in warnings)


def _reason(message: str) -> str:
    """An error's message without the place and without the text it is near to."""
    message = re.sub(r"(; )?near '.*", "", message.strip(), flags=re.DOTALL)
    message = message.removeprefix("Noria does not support ").replace("|", "\\|")
    return re.sub(r"\s*(\(Noria does not support )", " (", message).strip().rstrip(";")


# ---------------------------------------------------------------- pages
def sql_page() -> str:
    with tempfile.TemporaryDirectory() as directory, noria.open(Path(directory) / "data") as db:
        for text in SCHEMA:
            db.sql(text)
        asked = Asked(db)
        out = ["# SQL", "", "Generated by `make docs` from what the planner does with each example; do not edit.", "",
               "*partial*: kept for the keys that are read, derived on demand, evicted under the memory limit.",
               "*full*: kept for every key, never evicted, for the reason given. *by Spark*: computed over a snapshot",
               "when it is asked for, with a warning that says so. *refused*: error 1235, with what to do instead.", ""]
        for section, examples in QUERIES.items():
            out += [f"## {section}", "", "| feature | example | how | |", "|---|---|---|---|"]
            out += [f"| {feature} | `{_cell(text)}` | {how} | {why} |"
                    for feature, text in examples.items() for how, why in [asked.query(text)]]
            out.append("")
        out += ["## Expressions", "", "| example | how | |", "|---|---|---|"]
        out += [f"| `{_cell(e)}` | {how} | {why} |" for e in EXPRESSIONS for how, why in [asked.expression(e)]]
        out += ["", f"Operators and conditional functions of the evaluator: {_names(set(TYPING) - INTERNAL)}.", "",
                f"Functions of its library: {_names(n for n, f in LIBRARY.items() if not f.internal)}.", "",
                "## Types", "", "| type | how | |", "|---|---|---|"]
        out += [f"| `{_cell(t)}` | {how} | {why} |" for n, t in enumerate(TYPES)
                for how, why in [asked.statement(f"CREATE TABLE type{n} (id INT PRIMARY KEY, x {t})")]]
        out += ["", "## Other statements", "", "| example | how | |", "|---|---|---|"]
        out += [f"| `{_cell(s)}` | {how} | {why} |" for s in STATEMENTS for how, why in [asked.statement(s)]]
    shows = sorted({s.upper() for s in (*_SHOW, *(s for s in _SHOWS if s.startswith("noria")))})
    out += ["", "`SHOW`: " + ", ".join(shows) + ".", "",
            "Functions of the session (`SELECT` without `FROM`): " + ", ".join(sorted(SESSION_FUNCTIONS)) + ".", "",
            "Session variables: " + ", ".join(f"`{v}`" for v in sorted(VARIABLES)) + ".", ""]
    return "\n".join(out)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in sorted(names))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def reference_page() -> str:
    from noria.cli.main import app, register

    if not app.registered_commands:
        register()
    out = ["# Reference", "", "Generated by `make docs` from the program; do not edit.", "", "## Commands", ""]
    command = typer.main.get_command(app)
    for name, sub in sorted(getattr(command, "commands", {}).items()):
        about = " ".join((sub.help or "").split("\n\n")[0].split())
        out += [f"### noria {name}", "", about, ""]
        for p in sub.params:
            if p.name == "help":
                continue
            words = ", ".join(f"`{o}`" for o in p.opts if o.startswith("-")) or f"`{(p.name or '').upper()}`"
            default = "" if p.default in (None, "", (), False) or callable(p.default) else f" (default `{p.default}`)"
            out.append(f"* {words}: {getattr(p, 'help', None) or ''}{default}".rstrip(": "))
        out.append("")
    services = Api(None)  # type: ignore[arg-type]  # only its routes are read
    out += ["## HTTP", "", *(f"* `{method} {path}`" for method, path, _ in services.routes()), "", "## Metrics", "",
            "| metric | |", "|---|---|"]
    out += [f"| `noria_{n}` | {about} |" for n, about in sorted(DESCRIPTIONS.items())]
    out += ["", "For each node of the data-flow, with the labels `node` and `does`:", "", "| metric | |", "|---|---|"]
    out += [f"| `noria_node_{n}` | {about} |" for n, about in NODE_DESCRIPTIONS.items()]
    out += ["", "For each front end that is a process of its own (`--front-ends`), with the label `front_end`:", "",
            "| metric | |", "|---|---|"]
    out += [f"| `noria_front_end_{n}` | {about} |" for n, about in FRONT_END_DESCRIPTIONS.items()]
    out += ["", "For each database that tables follow (`noria follow`), with the label `source`:", "", "| metric | |",
            "|---|---|"]
    out += [f"| `noria_follow_{n}` | {about} |" for n, about in FOLLOW_DESCRIPTIONS.items()]
    out += ["", "## Bounds", "", "| bound | value |", "|---|---|"]
    out += [f"| `{n}` | {v} |" for n, v in sorted(vars(limits).items()) if n.isupper()]
    return "\n".join([*out, ""])


PAGES_OF = {"sql.md": sql_page, "reference.md": reference_page}


def main() -> int:
    PAGES.mkdir(exist_ok=True)
    for name, page in PAGES_OF.items():
        (PAGES / name).write_text(page())
        print(PAGES / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
