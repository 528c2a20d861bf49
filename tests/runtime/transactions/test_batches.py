"""Concurrent statements over several workers share groups while workers die: each is atomic, is done once, and fails
only for its own error."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

from noria.core.errors import SqlError
from noria.runtime.routing.write_routing import AutoIncrementValues, routed
from runtime.processes import run
from runtime.several import Several
from sql.catalogs import DictCatalog

TABLES = ("CREATE TABLE plain (id INT PRIMARY KEY, tag INT)",
          "CREATE TABLE named (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20) UNIQUE, tag INT)",
          "CREATE TABLE counts (id INT PRIMARY KEY, n INT)")
COUNTED = 20


class Crowd:
    def __init__(self, db: Several, rng: random.Random):
        self.db, self.rng = db, rng
        self.tags = 0
        self.done: dict[str, dict[int, list[object]]] = {"plain": {}, "named": {}}  # by tag: the keys of its rows
        self.failed: dict[str, list[list[object]]] = {"plain": [], "named": []}
        self.counted: Counter[int] = Counter()

    async def insert_plain(self) -> None:
        self.tags += 1
        tag, keys = self.tags, self.rng.sample(range(self.tags * 20), self.rng.randint(1, 4))
        await self._insert("plain", tag, keys, "INSERT INTO plain VALUES " + ", ".join(f"({k}, {tag})" for k in keys))

    async def insert_named(self) -> None:
        self.tags += 1
        tag, names = self.tags, [f"n{k}" for k in self.rng.sample(range(self.tags * 20), self.rng.randint(1, 4))]
        if self.rng.random() < 0.05:
            names.append(names[0].upper())
        rows = ", ".join(f"('{n}', {tag})" for n in names)
        await self._insert("named", tag, [n.lower() for n in names], f"INSERT INTO named (name, tag) VALUES {rows}")

    async def _insert(self, table: str, tag: int, keys: list[object], text: str) -> None:
        try:
            await self.db.sql(text)
        except SqlError as e:
            assert e.code == 1062, e
            self.failed[table].append(keys)
        else:
            self.done[table][tag] = keys

    async def count(self) -> None:
        some = self.rng.sample(range(COUNTED), self.rng.randint(1, 4))
        await self.db.sql(f"UPDATE counts SET n = n + 1 WHERE id IN ({', '.join(map(str, some))})")
        self.counted.update(some)

    async def check(self) -> None:
        for table, key in (("plain", "id"), ("named", "name")):
            rows = await self.db.sql(f"SELECT tag, {key} FROM {table}")
            expected = sorted(((tag, k) for tag, keys in self.done[table].items() for k in keys), key=str)
            assert rows == expected, f"{table}: {set(rows) ^ set(expected)}"
            stored = {k for _, k in rows}
            for keys in self.failed[table]:
                assert stored & set(keys) or len(set(keys)) < len(keys), f"{keys} failed for nothing"
        assert dict(await self.db.sql("SELECT id, n FROM counts")) == {i: self.counted[i] for i in range(COUNTED)}


def test_concurrent_statements_while_workers_die(tmp_path: Path) -> None:
    async def test() -> None:
        db, rng = Several(tmp_path, 3), random.Random(5)
        crowd = Crowd(db, rng)
        await db.start()
        try:
            for text in TABLES:
                await db.sql(text)
            await db.sql("INSERT INTO counts VALUES " + ", ".join(f"({i}, 0)" for i in range(COUNTED)))
            for turn in range(5):
                kinds = rng.choices((crowd.insert_plain, crowd.insert_named, crowd.count), k=rng.choice([3, 20, 60]))
                tasks = [asyncio.ensure_future(kind()) for kind in kinds]
                if turn % 2:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    db.alive[rng.randrange(3)].kill()
                await asyncio.gather(*tasks)
            await crowd.check()
            assert crowd.failed["plain"] and crowd.failed["named"]
        finally:
            await db.stop()

    run(test, 200)


def test_statements_that_may_share_a_group() -> None:
    catalog = DictCatalog()
    catalog.run("CREATE TABLE plain (id INT PRIMARY KEY, tag INT)")
    catalog.run("CREATE TABLE named (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE)")
    plain, named = catalog.tables["plain"], catalog.tables["named"]

    def of(text: str) -> tuple[bool, bool]:
        (statement,) = catalog.run(text)
        write = routed(statement, plain if statement.table == "plain" else named, 3, AutoIncrementValues(), 0)
        return write.few, write.distinct

    assert of("INSERT INTO plain VALUES (1, 1), (2, 2), (3, 3)")[0]
    assert of("UPDATE plain SET tag = 1 WHERE id IN (1, 2, 3)")[0]
    assert not of("UPDATE plain SET tag = 1 WHERE tag = 2")[0] and not of("DELETE FROM plain")[0]
    assert of("INSERT INTO named VALUES (1, 'a'), (2, 'b'), (3, NULL), (4, NULL)")[1]
    assert not of("INSERT INTO named VALUES (1, 'a'), (2, 'A')")[1]
