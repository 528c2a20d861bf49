"""Transactions on Noria and on Debian's MariaDB, in one run on one machine: BEGIN, some rows, COMMIT.

Both servers sync their log before they acknowledge a commit.  A transaction updates 1, 5 or 20 rows by primary key, one
statement for each row.  One client gives the latency of COMMIT and of the whole transaction; eight give the
throughput.  The servers take turns, round by round.  A second table compares statements without BEGIN: an INSERT, and
an INSERT whose FOREIGN KEY is checked.

    python bench/transactions.py [--seconds 3] [--rounds 3] [--workers 1]
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pymysql

from mysql import PASSWORD, USER, Server, servers

ACCOUNTS = 10_000
TABLES = ("CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL)",
          "CREATE TABLE plain (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT, amount INT)",
          "CREATE TABLE entries (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT, amount INT, "
          "FOREIGN KEY (account) REFERENCES accounts (id))")


def connected(server: Server) -> Any:
    return pymysql.connect(host=server.host, port=server.port, user=USER, password=PASSWORD, database="noria",
                           autocommit=True)


def run(cursor: Any, text: str) -> None:
    cursor.execute(text)


def transaction(connection: Any, chance: random.Random, rows: int) -> tuple[float, float]:
    """Return the seconds of COMMIT and of the whole transaction."""
    accounts = sorted(chance.sample(range(ACCOUNTS), rows))  # one order, so that no two wait for each other
    with connection.cursor() as cursor:
        began = time.perf_counter()
        run(cursor, "BEGIN")
        for account in accounts:
            run(cursor, f"UPDATE accounts SET balance = balance + 1 WHERE id = {account}")
        before = time.perf_counter()
        run(cursor, "COMMIT")
        ended = time.perf_counter()
    return ended - before, ended - began


def rate(server: Server, clients: int, seconds: float, once: Callable[[Any, random.Random], object]) -> float:
    """Return how often a second the clients did it together."""
    counts = [0] * clients

    def loop(n: int) -> None:
        connection, chance = connected(server), random.Random(n)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            once(connection, chance)
            counts[n] += 1
        connection.close()

    threads = [threading.Thread(target=loop, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def insert(table: str) -> Callable[[Any, random.Random], object]:
    def once(connection: Any, chance: random.Random) -> None:
        with connection.cursor() as cursor:
            run(cursor, f"INSERT INTO {table} (account, amount) VALUES ({chance.randrange(ACCOUNTS)}, 1)")

    return once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with servers("", "noria,mariadb", ("--workers", str(options.workers))) as pair:
        for server in pair:
            with connected(server) as connection, connection.cursor() as cursor:
                for text in TABLES:
                    run(cursor, text)
                for at in range(0, ACCOUNTS, 1000):
                    some = ", ".join(f"({n}, 0)" for n in range(at, at + 1000))
                    run(cursor, f"INSERT INTO accounts VALUES {some}")
        compare(pair, options)


def compare(pair: Sequence[Server], options: argparse.Namespace) -> None:
    print(f"{'':<34}{'Noria':>10}{'MariaDB':>10}   ratio", flush=True)

    def shown(what: str, found: dict[str, list[float]], digits: int) -> None:
        mine, theirs = (statistics.median(found[s.name]) for s in pair)
        print(f"{what:<34}{mine:>10.{digits}f}{theirs:>10.{digits}f}{mine / theirs:>8.2f}", flush=True)

    for rows in (1, 5, 20):
        commits, wholes, rates = (defaultdict[str, list[float]](list) for _ in range(3))
        for n in range(options.rounds):
            for server in pair if n % 2 else pair[::-1]:
                with connected(server) as connection:
                    took = [transaction(connection, random.Random(n), rows) for _ in range(200)]
                commits[server.name] += [1000 * c for c, _ in took]
                wholes[server.name] += [1000 * w for _, w in took]
                rates[server.name].append(rate(server, 8, options.seconds, partial(transaction, rows=rows)))
        shown(f"{rows} rows: COMMIT, ms", commits, 2)
        shown(f"{rows} rows: the transaction, ms", wholes, 2)
        shown(f"{rows} rows: transactions/s, 8 clients", rates, 0)
    for what, table in (("INSERT/s, 8 clients", "plain"), ("the same, FOREIGN KEY", "entries")):
        rates = defaultdict[str, list[float]](list)
        for n in range(options.rounds):
            for server in pair if n % 2 else pair[::-1]:
                rates[server.name].append(rate(server, 8, options.seconds, insert(table)))
        shown(what, rates, 0)


if __name__ == "__main__":
    main()
