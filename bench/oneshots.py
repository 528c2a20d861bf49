"""Distinct SELECTs over ten small tables on one connection: the cost of a new shape, and the memory that it leaves.

Each SELECT has another shape: columns, conditions, a join or none, groups or rows, an order, a limit.  For each server
it prints statements a second, and the median and 99th percentile in ms.  For Noria it adds the processor time of front
end and worker for a SELECT, their memory before and after, and the number of views.  MariaDB runs the same texts, in
turns.

    python bench/oneshots.py [--selects 20000] [--rows 200]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mysql import MariaDb, NoriaServer, servers

TABLES = 10
NUMBERS, TEXTS = ("a", "b", "c", "d", "e"), ("s", "t")
TURN = 500


def tables(rows: int) -> Iterator[tuple[str, str]]:
    """Yield CREATE TABLE and INSERT for each table."""
    chance = random.Random(1)
    for n in range(TABLES):
        columns = ", ".join([*(f"{c}{n} INT" for c in NUMBERS), *(f"{c}{n} VARCHAR(20)" for c in TEXTS)])
        values = ", ".join(f"({i}, {', '.join(str(chance.randrange(20)) for _ in NUMBERS)}, "
                           + ", ".join(f"'text {chance.randrange(9)}'" for _ in TEXTS) + ")" for i in range(rows))
        yield f"CREATE TABLE t{n} (id INT PRIMARY KEY, {columns}, KEY by_a (a{n}))", f"INSERT INTO t{n} VALUES {values}"


def selects(count: int) -> list[str]:
    """Return SELECTs of `count` different shapes."""
    chance, shapes, texts = random.Random(2), set[str](), list[str]()
    while len(texts) < count:
        text = select(chance)
        shape = re.sub(r"(?<![a-z])\d+|'[^']*'", "?", text)
        if shape not in shapes:
            shapes.add(shape)
            texts.append(text)
    return texts


def select(chance: random.Random) -> str:
    n, m = chance.sample(range(TABLES), 2)
    joined = chance.random() < 0.4
    own = [c + str(n) for c in (*NUMBERS, *TEXTS)] + ([c + str(m) for c in NUMBERS] if joined else [])
    numbers = [c for c in own if c[0] in NUMBERS]
    conditions = [condition(chance, c) for c in chance.sample(numbers, chance.randint(0, 2))]
    if chance.random() < 0.5:
        conditions.append(f"t{n}.id = {chance.randrange(100)}")
    source = f"t{n} JOIN t{m} ON a{n} = a{m}" if joined else f"t{n}"
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if chance.random() < 0.4:
        group = chance.sample(own, chance.randint(1, 2))
        calls = [f"{chance.choice(('SUM', 'MIN', 'MAX', 'COUNT'))}({c})" for c in chance.sample(numbers, 2)]
        return f"SELECT {', '.join([*group, *calls])} FROM {source}{where} GROUP BY {', '.join(group)}"
    shown = chance.sample(own, chance.randint(2, 5))
    order = f" ORDER BY {', '.join(chance.sample(shown, 2))}" if chance.random() < 0.5 else ""
    return f"SELECT {', '.join(shown)} FROM {source}{where}{order}{' LIMIT 10' if order else ''}"


def condition(chance: random.Random, column: str) -> str:
    kind, value = chance.choice(("=", "<", ">", "IN")), chance.randrange(20)
    return f"{column} IN ({value}, {value + 1})" if kind == "IN" else f"{column} {kind} {value}"


class Timed:
    """A connection and the durations of its statements, in ms."""

    def __init__(self, server: MariaDb | NoriaServer):
        self.server, self.took = server, list[float]()
        self.cursor = server.connect().cursor() if isinstance(server, MariaDb) else connection(server).cursor()

    def run(self, texts: list[str]) -> list[Any]:
        answers = []
        for text in texts:
            start = time.perf_counter()
            self.cursor.execute(text)
            found = self.cursor.fetchall()
            self.took.append(1e3 * (time.perf_counter() - start))
            answers.append(sorted(map(str, found)) if " LIMIT" not in text else len(found))
        return answers

    def told(self) -> str:
        took = np.array(self.took)
        return (f"{self.server.name:8} {1e3 / took.mean():7,.0f}/s   median {np.median(took):6.2f} ms   "
                f"99 % {np.percentile(took, 99):7.2f} ms   longest {took.max():7.1f} ms")


def connection(server: NoriaServer) -> Any:
    import pymysql

    from mysql import PASSWORD, USER
    return pymysql.connect(host=server.host, port=server.port, user=USER, password=PASSWORD, autocommit=True)


def processes(server: NoriaServer) -> dict[str, int]:
    """Return the process ids of the front end and of its worker: the descendant that has the store open."""
    assert server._process is not None
    found, parents = {"front end": server._process.pid}, dict[int, int]()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    for pid in parents:
        above = pid
        while above in parents and above != server._process.pid:
            above = parents[above]
        if above == server._process.pid and pid != above:
            with contextlib.suppress(OSError):
                files = [os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir()]
                if any(f.endswith("LOCK") and str(server.directory) in f for f in files):
                    found["worker"] = pid
    return found


def memory(server: NoriaServer) -> dict[str, float]:
    """Return the resident anonymous memory of each process, in MB."""
    return {name: int(re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024
            for name, pid in processes(server).items()}


def processor_ms(server: NoriaServer) -> dict[str, float]:
    """Return the processor time of each process, in ms."""
    def ticks(pid: int) -> int:
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return int(user) + int(system)

    return {name: 1e3 * ticks(pid) / os.sysconf("SC_CLK_TCK") for name, pid in processes(server).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--selects", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=200, help="of each of the ten tables")
    parser.add_argument("--servers", default="noria,mariadb")
    options = parser.parse_args()
    texts = selects(options.selects)
    with servers("", options.servers) as started:
        runs = [Timed(s) for s in started]
        for create, insert in tables(options.rows):
            for run in runs:
                run.cursor.execute(create)
                run.cursor.execute(insert)
        before, differ = None, 0
        for n, at in enumerate(range(0, len(texts), TURN)):
            answers = [run.run(texts[at : at + TURN]) for run in runs]
            differ += sum(a != b for a, b in itertools.pairwise(answers)) if len(runs) == 1 else sum(
                a != b for a, b in zip(*answers, strict=True))
            if n == 1:  # bounded caches are nearly full
                before = [(memory(s), processor_ms(s)) for s in started if isinstance(s, NoriaServer)]
                for run in runs:
                    run.took.clear()
        for run in runs:
            print(run.told())
        print(f"{differ} of {len(texts)} answers differ")
        measured = len(texts) - 2 * TURN
        for server, (old, took) in zip([s for s in started if isinstance(s, NoriaServer)], before or [], strict=True):
            now, spent = memory(server), processor_ms(server)
            print("processor time for each SELECT: " + ", ".join(
                f"{name} {(spent[name] - took[name]) / measured:.2f} ms" for name in spent if name in took))
            print("   ".join(f"{name}: {old[name]:.0f} MB, then {now[name]:.0f} MB" for name in now if name in old))
            with connection(server).cursor() as cursor:
                cursor.execute("SHOW NORIA STATUS")
                status = dict(cursor.fetchall())
                print({k: v for k, v in status.items() if k in (
                    "adhoc_views", "one_shots_total", "spark_queries_total", "worker_nodes", "worker_symbols")})


if __name__ == "__main__":
    main()
