"""The cost of the first read of a SELECT that no view answers, compared with MariaDB: a blog's pages in many shapes.

There are users, posts, comments and likes, and no view is declared.  Each of five pages is read with changing columns:

* first of all: the first read of each page after a start (wall time);
* new shapes: the median of the others (wall time), and the processor time of Noria's front end and worker for each;
* one shape: four texts that differ in a literal (wall time); a view answers from the third one on;
* embedded: the processor time of one thread for a new shape, in this process.

The servers take turns with each read, and their rows must be equal.

    python bench/first_reads.py [--rows 100000] [--shapes 80] [--only embedded|served]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import noria
from blog import TABLES, Reader, fill, rows_of
from mysql import MariaDb, NoriaServer
from oneshots import processor_ms

PAGES = {
    "home": (("p.id", "p.title", "u.name", "p.created_at", "p.author", "u.joined", "p.body"),
             "SELECT {columns} FROM posts p JOIN users u ON u.id = p.author ORDER BY p.created_at DESC, p.id DESC "
             "LIMIT 20"),
    "post": (("p.title", "p.body", "u.name", "p.id", "p.created_at", "p.author", "u.joined"),
             "SELECT {columns} FROM posts p JOIN users u ON u.id = p.author WHERE p.id = {id}"),
    "comments": (("c.text", "u.name", "c.created_at", "c.id", "c.post", "u.joined", "u.id"),
                 "SELECT {columns} FROM comments c JOIN users u ON u.id = c.author WHERE c.post = {id} "
                 "ORDER BY c.created_at, c.id"),
    "likes": (("COUNT(*)", "MIN(user)", "MAX(user)", "SUM(user)", "AVG(user)", "COUNT(user)"),
              "SELECT {columns} FROM likes WHERE post = {id}"),
    "profile": (("p.id", "p.title", "COUNT(l.user)", "MIN(l.user)", "MAX(l.user)", "SUM(l.user)"),
                "SELECT {columns} FROM posts p LEFT JOIN likes l ON l.post = p.id WHERE p.author = {id} "
                "GROUP BY p.id, p.title ORDER BY COUNT(l.user) DESC, p.id LIMIT 10"),
}
KEYS = range(1, 500)
TEXTS = 4


def shapes(count: int) -> list[tuple[str, str]]:
    """Return `count` shapes of each page, as (page, text) with `{id}` for the key.  The pages alternate."""
    chance, found = random.Random(3), list[list[tuple[str, str]]]()
    for page, (columns, text) in PAGES.items():
        lists: dict[tuple[str, ...], None] = {}
        while len(lists) < count:
            lists[tuple(chance.sample(columns, chance.randint(2, 4)))] = None
        found.append([(page, text.replace("{columns}", ", ".join(some))) for some in lists])
    return [shape for together in zip(*found, strict=True) for shape in together]


def median_ms(took: Sequence[float]) -> str:
    return f"{statistics.median(took):8.2f}"


def served(rows: int, count: int) -> None:
    chance, texts = random.Random(4), shapes(count)
    once, repeated = texts[: -5 * (count // 4)], texts[-5 * (count // 4) :]
    with tempfile.TemporaryDirectory() as place:
        for name in ("noria", "maria"):
            (Path(place) / name).mkdir()
        server, maria = NoriaServer(Path(place) / "noria"), MariaDb(Path(place) / "maria")
        try:
            maria.start()
            server.start()
            for s in (server, maria):
                fill(s, rows)
            server.stop()
            server.start()
            readers = Reader(server), Reader(maria)

            def read(text: str) -> tuple[float, float]:
                (mine, found), (theirs, there) = (r(text) for r in readers)
                if sorted(map(str, found)) != sorted(map(str, there)):
                    print(f"DIFFERENT ROWS: {text}: {found}")
                return mine, theirs

            print(f"{'ms':<32}   Noria  MariaDB", flush=True)
            for page, text in once[:5]:
                mine, theirs = read(text.replace("{id}", str(chance.choice(KEYS))))
                print(f"  first of all: {page:<16} {mine:8.2f} {theirs:8.2f}", flush=True)
            took = defaultdict[str, list[tuple[float, float]]](list)
            before = processor_ms(server)
            for page, text in once[5:]:
                took[page].append(read(text.replace("{id}", str(chance.choice(KEYS)))))
            spent = processor_ms(server)
            for page, some in took.items():
                print(f"  new shapes: {page:<18} " + " ".join(map(median_ms, zip(*some, strict=True))), flush=True)
            print("  processor time of each: " + ", ".join(
                f"{name} {(spent[name] - before[name]) / len(once[5:]):.2f}" for name in spent if name in before))
            coming = defaultdict[int, list[tuple[float, float]]](list)
            for _, text in (r for r in repeated if "{id}" in r[1]):
                for n in range(TEXTS):
                    coming[n].append(read(text.replace("{id}", str(KEYS[n]))))
            for n, some in coming.items():
                print(f"  one shape: text {n + 1:<13} " + " ".join(map(median_ms, zip(*some, strict=True))), flush=True)
        finally:
            server.stop()
            maria.stop()


def embedded(rows: int, count: int) -> None:
    """Measure an embedded database.  Its loop runs in this thread, so that the thread's processor time is its own."""
    chance = random.Random(4)
    with tempfile.TemporaryDirectory() as place:
        db = noria.open(Path(place) / "d")
        for text in TABLES:
            db.sql(text)
        for table in ("users", "posts", "comments", "likes"):
            some = [tuple(map(str, row)) for row in rows_of(table, rows)]
            for at in range(0, len(some), 1_000):
                values = ", ".join("('" + "', '".join(row) + "')" for row in some[at : at + 1_000])
                db.sql(f"INSERT INTO {table} VALUES {values}")
        transport = db.transport
        loop, took = transport.loop, defaultdict[str, list[float]](list)
        loop.call_soon_threadsafe(loop.stop)
        transport._thread.join()

        async def read() -> None:
            for n, (page, text) in enumerate(shapes(count)):
                start = time.thread_time()
                await transport.sessions.run(text.replace("{id}", str(chance.choice(KEYS))), [])
                took[page if n >= 5 * count // 4 else ""].append(1e3 * (time.thread_time() - start))

        loop.run_until_complete(read())
        took.pop("", None)
        print("embedded, processor ms of a new shape: " + ", ".join(
            f"{page} {statistics.median(some):.2f}" for page, some in took.items())
            + f"; mean {statistics.mean(map(statistics.median, took.values())):.2f}")
        loop.run_until_complete(transport.link.close())
        loop.close()
        transport._claim.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--shapes", type=int, default=80, help="of each page")
    parser.add_argument("--only", choices=("embedded", "served"))
    options = parser.parse_args()
    if options.only != "served":
        embedded(min(options.rows, 20_000), options.shapes)
    if options.only != "embedded":
        served(options.rows, options.shapes)


if __name__ == "__main__":
    main()
