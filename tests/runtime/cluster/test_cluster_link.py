"""Three worker processes behind one link: SQL as one worker answers it, while workers and front ends die."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Migrate
from runtime.processes import run, within
from runtime.several import Several

SEEDS = int(os.environ.get("NORIA_SHARDED_SEEDS", "1"))
TABLES = ("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, age INT)",
          "CREATE TABLE posts (id INT PRIMARY KEY, author INT, score INT, title VARCHAR(20))",
          "CREATE TABLE votes (post INT, who INT, points INT, PRIMARY KEY (post, who))",
          "CREATE TABLE log (what VARCHAR(10), number INT)")
READS = (  # text with a parameter, or without
    "SELECT id, author, score, title FROM posts WHERE id = ?",
    "SELECT id, score FROM posts WHERE author = ?",
    "SELECT post, COUNT(*), SUM(points) FROM votes WHERE post = ? GROUP BY post",
    "SELECT p.author, COUNT(*) FROM posts p JOIN votes v ON v.post = p.id WHERE p.author = ? GROUP BY p.author",
    "SELECT u.name, p.title, v.points FROM users u JOIN posts p ON p.author = u.id JOIN votes v ON v.post = p.id "
    "WHERE u.id = ?",
    "SELECT p.id, v.who FROM posts p LEFT JOIN votes v ON v.post = p.id AND v.points > 1 WHERE p.author = ?",
    "SELECT id, score FROM posts WHERE author = ? ORDER BY score DESC, id LIMIT 2",
    "SELECT what, MAX(number), COUNT(*) FROM log WHERE number < ? GROUP BY what",
    "SELECT id FROM posts WHERE score > ? ORDER BY id",
    "SELECT DISTINCT who FROM votes WHERE points = ?",
    "SELECT author FROM posts WHERE score = ? UNION SELECT who FROM votes WHERE points = 2",
    "SELECT COUNT(*), SUM(points) FROM votes",
    "SELECT author, COUNT(*) FROM posts GROUP BY author",
    "SELECT name FROM users WHERE age IN (1, 2, 3) ORDER BY name",
    "SELECT title FROM posts ORDER BY score DESC, id LIMIT 3",
)


class Game:
    """Sends the same statements to the workers and to SQLite."""

    def __init__(self, path: Path, rng: random.Random, away: Callable[[int], bool] | None = None):
        self.path, self.rng, self.epoch, self.rows, self.away = path, rng, 0, 0, away
        self.truth = sqlite3.connect(":memory:", isolation_level=None)
        self.key = ["post", "who"]  # of votes

    async def begin(self) -> None:
        self.epoch += 1
        self.db = Several(self.path, 3, self.epoch, self.away)
        await self.db.start()

    async def both(self, text: str) -> None:
        await self.like(text, text.replace("INSERT IGNORE", "INSERT OR IGNORE")
                        .replace("ON DUPLICATE KEY UPDATE", "ON CONFLICT (id) DO UPDATE SET"))

    async def like(self, text: str, *truth: str) -> None:
        """Run a statement; the statements `truth` together have its effect in SQLite."""
        self.truth.execute("BEGIN")
        try:
            for one in truth:
                self.truth.execute(one)
        except sqlite3.IntegrityError:
            self.truth.execute("ROLLBACK")
            with pytest.raises(SqlError, match="Duplicate entry"):
                await self.db.sql(text)
                pytest.fail(f"no error: {text}")
        else:
            self.truth.execute("COMMIT")
            await self.db.sql(text)

    async def user_again(self) -> None:
        """Change the row with the id, or else the one with the name, as MySQL does.  SQLite does not define which."""
        r = self.rng.randrange
        changes = self.rng.choice(["age = age + 1", "name = 'n3'", "id = id + 3", "id = id + 1, age = 0"])
        rows = [(r(12), f"n{r(15)}", r(6)) for _ in range(r(1, 4))]
        truth = []
        for row in rows:
            met = f"(SELECT id FROM users WHERE id = {row[0]} OR name = '{row[1]}' ORDER BY id <> {row[0]} LIMIT 1)"
            truth += [f"CREATE TEMP TABLE met AS SELECT * FROM {met}", f"UPDATE users SET {changes} WHERE id IN met",
                      f"INSERT INTO users SELECT {row[0]}, '{row[1]}', {row[2]} WHERE NOT EXISTS (SELECT * FROM met)",
                      "DROP TABLE met"]
        values = ", ".join(map(str, rows))
        await self.like(f"INSERT INTO users VALUES {values} ON DUPLICATE KEY UPDATE {changes}", *truth)

    async def moved(self) -> None:
        """Change keys of many rows in one statement.  SQLite checks each row, so its keys become negative first."""
        r = self.rng.randrange
        key, table, where = self.rng.choice([
            ("id", "users", f"age = {r(6)}"), ("id", "posts", f"author = {r(12)}"),
            ("id", "posts", f"id IN ({r(30)}, {r(130)})"),
            ("post", "votes", f"who < {r(12)}"), ("post", "votes", f"post = {r(40)}"),
            ("who", "votes", f"points = {r(4)}")])
        by = r(1, 4)
        await self.like(f"UPDATE {table} SET {key} = {key} + {by} WHERE {where}",
                        f"UPDATE {table} SET {key} = -({key} + {by}) WHERE {where}",
                        f"UPDATE {table} SET {key} = -{key} WHERE {key} < 0")

    async def rekeyed(self, kill: bool) -> None:
        """Change the primary key, so that rows move to other workers; one of these may die meanwhile."""
        self.key.reverse()
        text = f"ALTER TABLE votes DROP PRIMARY KEY, ADD PRIMARY KEY ({', '.join(self.key)})"
        changing = asyncio.ensure_future(self.db.sql(text))
        if kill:
            for _ in range(self.rng.randrange(200)):
                await asyncio.sleep(0)
            self.db.alive[self.rng.randrange(3)].kill()
        await changing

    def some_rows(self, table: str) -> str:
        r = self.rng.randrange
        rows = []
        for _ in range(r(1, 6)):
            self.rows += 1
            fresh = self.rows + 100 if r(4) else r(30)
            rows.append({"users": f"({r(12)}, 'n{r(15)}', {r(6)})",
                         "posts": f"({fresh}, {r(12)}, {r(5)}, 't{r(9)}')",
                         "votes": f"({r(40)}, {r(12)}, {r(4)})",
                         "log": f"('{self.rng.choice('abc')}', {r(20)})"}[table])
        return ", ".join(rows)

    def write(self) -> str:
        r, table = self.rng.randrange, self.rng.choice(["users", "posts", "posts", "votes", "votes", "log"])
        verb = self.rng.choice(["INSERT INTO", "INSERT INTO", "INSERT IGNORE INTO", "REPLACE INTO"])
        return self.rng.choice([
            f"{verb if table != 'log' else 'INSERT INTO'} {table} VALUES {self.some_rows(table)}",
            f"{verb if table != 'log' else 'INSERT INTO'} {table} VALUES {self.some_rows(table)}",
            f"INSERT INTO posts VALUES {self.some_rows('posts')} ON DUPLICATE KEY UPDATE id = id + {r(1, 40)}",
            f"UPDATE posts SET score = score + 1 WHERE author = {r(12)}",
            f"UPDATE posts SET author = {r(12)} WHERE id = {r(30)}",
            f"UPDATE users SET name = 'n{r(15)}' WHERE {self.rng.choice(['id', 'age'])} = {r(6)}",
            f"UPDATE users SET id = {r(12)}, name = 'n{r(15)}', age = age + 1 WHERE id = {r(12)}",
            f"DELETE FROM users WHERE name = 'n{r(15)}' OR age = {r(6)}",
            f"UPDATE votes SET points = {r(4)} WHERE post < {r(40)}",
            f"UPDATE log SET number = number + 1 WHERE what = '{self.rng.choice('abc')}'",
            f"DELETE FROM votes WHERE who = {r(12)} AND points = {r(4)}",
            f"DELETE FROM posts WHERE id IN ({r(30)}, {r(30)})",
        ])

    async def compare(self) -> None:
        """Read concurrently, so that reads from a worker on another host are batched."""
        reads = [(text, (self.rng.randrange(12),) * text.count("?")) for text in self.rng.sample(READS, 6)]
        reads += [(READS[0], (key,)) for key in range(12)]
        expected = [sorted(map(tuple, self.truth.execute(*a).fetchall()), key=str) for a in reads]
        answers = await asyncio.gather(*(self.db.sql(text, *values) for text, values in reads))
        for a, rows, answer in zip(reads, expected, answers, strict=True):
            got = [tuple(int(v) if isinstance(v, Decimal) else v for v in row) for row in answer]
            assert sorted(got, key=str) == rows, a


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.runtime.cluster.exclusive.COPIED_ROWS", 20)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_answers_are_those_of_one_worker_while_processes_die(tmp_path: Path, seed: int, small_pages: None) -> None:
    played(Game(tmp_path, random.Random(seed)))


@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_workers_on_other_hosts(tmp_path: Path, seed: int, small_pages: None) -> None:
    """Each start of a worker may be on another host than before; tunnels die, too."""
    rng = random.Random(seed)
    places = random.Random(seed + 1)
    played(Game(tmp_path, rng, lambda worker: places.random() < 0.7))


def played(game: Game) -> None:
    async def test() -> None:
        rng = game.rng
        await game.begin()
        try:
            for text in TABLES:
                await game.both(text)
            for turn in range(70):
                kind = rng.random()
                await (game.moved() if kind < 0.15 else game.user_again() if kind < 0.3 else
                       game.rekeyed(kind < 0.32) if kind < 0.36 else game.both(game.write()))
                if rng.random() < 0.3:
                    await game.compare()
                if rng.random() < 0.06:
                    for w in rng.sample(range(3), rng.choice([1, 1, 1, 2, 3])):
                        game.db.alive[w].kill()
                if game.db.hub is not None and rng.random() < 0.03:
                    game.db.hub.kill()
                if turn == 20:
                    await check_a_move_is_atomic(game)
                if turn == 35:
                    await check_a_statement_is_atomic(game)
                if turn == 50:
                    await check_concurrent_inserts(game)
            await game.compare()
        finally:
            await game.db.stop()

    run(test, 400)


async def die_during(game: Game, text: str) -> None:
    """Let the front end and all workers die during a statement, and start them again."""
    begun = asyncio.ensure_future(game.db.sql(text))
    for _ in range(game.rng.randrange(400)):
        await asyncio.sleep(0)
    await game.db.die()
    begun.cancel()
    await asyncio.gather(begun, return_exceptions=True)
    await game.begin()


async def check_a_statement_is_atomic(game: Game) -> None:
    """The front end and all workers die during a statement over all shards, which may move rows.  The statement is
    atomic."""
    column = game.rng.choice(["points", "post"])
    await die_during(game, f"UPDATE votes SET {column} = {column} + 1000")
    (count, changed), = await game.db.sql(f"SELECT COUNT(*), SUM({column} >= 1000) FROM votes")
    assert (changed or 0) in (0, count)
    if changed:
        game.truth.execute(f"UPDATE votes SET {column} = {column} + 1000")
    await game.both(f"UPDATE votes SET {column} = {column} % 1000")


def test_unique_keys_are_added_and_dropped(tmp_path: Path) -> None:
    """A new UNIQUE index is compared among all workers, in slices, while others write."""
    async def test() -> None:
        db = Several(tmp_path, 3)
        await db.start()
        try:
            await db.sql("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), n INT)")
            await db.sql(f"INSERT INTO t VALUES {', '.join(f'({i}, {chr(39)}a{i}{chr(39)}, {i})' for i in range(60))}")
            await db.sql("INSERT INTO t VALUES (100, 'A7', NULL), (101, NULL, NULL), (102, NULL, NULL)")
            with pytest.raises(SqlError, match=r"Duplicate entry '[aA]7' for key 't\.u'"):
                await db.sql("ALTER TABLE t ADD UNIQUE u (name)")
            await db.sql("INSERT INTO t VALUES (103, 'a7', 3)")
            await db.sql("DELETE FROM t WHERE id IN (100, 103)")
            altering = asyncio.ensure_future(db.sql("ALTER TABLE t ADD UNIQUE u (name)"))
            writing = [asyncio.ensure_future(db.sql(f"INSERT INTO t VALUES ({200 + i}, 'b{i}', 1)")) for i in range(40)]
            await asyncio.gather(altering, *writing)
            for text in ("INSERT INTO t VALUES (300, 'B7', 1)", "UPDATE t SET name = 'b3' WHERE id = 4",
                         "UPDATE t SET name = 'same' WHERE id < 4"):
                with pytest.raises(SqlError, match=r"Duplicate entry .* for key 't\.u'"):
                    await db.sql(text)
            for text in ("CREATE TABLE other (id INT PRIMARY KEY, n INT)",
                         f"INSERT INTO other VALUES {', '.join(f'({i}, {i})' for i in range(100))}"):
                await db.sql(text)
            tasks = [asyncio.ensure_future(db.sql("ALTER TABLE other ADD UNIQUE (n)"))]
            for i in range(100):  # a duplicate: either the index or the row is refused
                for _ in range(20):
                    await asyncio.sleep(0)
                tasks.append(asyncio.ensure_future(db.sql(f"INSERT INTO other VALUES ({100 + i}, {i})")))
            altered, *_ = await asyncio.gather(*tasks, return_exceptions=True)
            twice = await db.sql("SELECT n FROM other GROUP BY n HAVING COUNT(*) > 1")
            assert bool(twice) == isinstance(altered, SqlError), (altered, twice)
            await db.sql("ALTER TABLE t MODIFY name VARCHAR(30)")
            with pytest.raises(SqlError, match="Duplicate entry"):
                await db.sql("INSERT INTO t VALUES (300, 'B7', 1)")
            await db.sql("ALTER TABLE t DROP INDEX u")
            await db.sql("INSERT INTO t VALUES (300, 'B7', 1)")
            assert await db.sql("SELECT COUNT(*) FROM t WHERE name = 'b7'") == [(2,)]
            await db.sql("DELETE FROM t WHERE id = 300")
            await change_at_worker_0_only(db, "ALTER TABLE t ADD UNIQUE v (name, n), MODIFY n BIGINT")
            db = Several(tmp_path, 3, 2)
            await db.start()
            await db.sql(f"INSERT INTO t VALUES (300, 'B7', {2**40})")
            with pytest.raises(SqlError, match=r"Duplicate entry .* for key 't\.v'"):
                await db.sql("INSERT INTO t VALUES (301, 'B7', 1)")
        finally:
            await db.stop()

    run(test, 200)


@pytest.mark.parametrize("at, made", [
    (2, ("SELECT id FROM t WHERE n = 1",)),
    (0, ("CREATE MATERIALIZED VIEW v AS SELECT n, COUNT(*) FROM t GROUP BY n",)),
    (2, ("CREATE VIEW v AS SELECT id FROM t WHERE n = ?",
         "CREATE OR REPLACE VIEW v AS SELECT id, n FROM t WHERE n = ?"))])
def test_a_view_that_is_created_while_all_workers_end(tmp_path: Path, at: int, made: tuple[str, ...]) -> None:
    """The workers end before worker 0 creates the view, or before the last worker does."""
    async def test() -> None:
        db = Several(tmp_path, 3)
        await db.start()
        try:
            await db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
            await db.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 1)")
            for text in made[:-1]:
                await db.sql(text)
            link, submit = db.links[at], db.links[at].submit

            def ended(body: Any) -> Any:
                if isinstance(body, Migrate):
                    link.submit = submit
                    for process in db.alive.values():
                        process.kill()
                return submit(body)

            link.submit = ended
            for _ in range(20):  # SELECTs of a new shape are answered without a view first
                await db.sql(made[-1])
                if link.submit == submit:
                    break
            assert link.submit == submit
            assert await db.sql("SELECT id FROM t WHERE n = 1") == [(1,), (3,)]
            assert await db.sql("SELECT id FROM t WHERE n = 2") == [(2,)]
            assert await db.sql("SELECT n, COUNT(*) FROM t GROUP BY n") == [(1, 2), (2, 1)]
        finally:
            await db.stop()

    run(test, 200)


async def change_at_worker_0_only(db: Several, text: str) -> None:
    """Change the program at worker 0, and let all die before the others receive the change."""
    sent = asyncio.Event()
    for link in db.links[1:]:
        def lost(group: str, body: Any, put: Any = link.fill_place) -> Any:
            sent.set()
            return asyncio.get_running_loop().create_future() if isinstance(body, Migrate) else put(group, body)

        link.fill_place = lost
    begun = asyncio.ensure_future(db.sql(text))
    await within(sent.wait(), 30)
    await db.die()
    begun.cancel()
    await asyncio.gather(begun, return_exceptions=True)


async def check_a_move_is_atomic(game: Game) -> None:
    """The front end and all workers die while rows move to other workers.  All rows are at their old or at their new
    workers, and the incomplete table is removed."""
    game.key.reverse()
    await die_during(game, f"ALTER TABLE votes DROP PRIMARY KEY, ADD PRIMARY KEY ({', '.join(game.key)})")
    await game.compare()
    await game.db.sql("CREATE TABLE passing (id INT PRIMARY KEY); DROP TABLE passing")
    assert set(game.db.link._program.mirror.tables) == {"users", "posts", "votes", "log"}


async def check_concurrent_inserts(game: Game) -> None:
    """Clients insert the same names concurrently while a worker dies: exactly the acknowledged ones are stored."""
    r = game.rng.randrange
    before = {name for (name,) in game.truth.execute("SELECT name FROM users WHERE name IS NOT NULL")}
    inserts = [(game.rows + 1000 + i, f"m{r(6)}" if r(3) else f"n{r(15)}") for i in range(24)]
    game.rows += len(inserts)
    writes = [asyncio.ensure_future(game.db.sql(f"INSERT INTO users VALUES ({i}, '{name}', {r(6)})"))
              for i, name in inserts]
    for _ in range(r(300)):
        await asyncio.sleep(0)
    game.db.alive[r(3)].kill()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert all(t == [] or (isinstance(t, SqlError) and t.code == 1062) for t in outcomes), outcomes
    rows = await game.db.sql("SELECT id, name, age FROM users")
    named = [name for _, name, _ in rows if name is not None]
    assert len(set(named)) == len(named) and set(named) == before | {name for _, name in inserts}
    there = {i for i, _, _ in rows}
    assert {i for (i, _), t in zip(inserts, outcomes, strict=True) if t == []} == there & {i for i, _ in inserts}
    game.truth.execute("DELETE FROM users")
    game.truth.executemany("INSERT INTO users VALUES (?, ?, ?)", rows)
