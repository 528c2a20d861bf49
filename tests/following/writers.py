"""Random transactions on the tables of a followed database."""

from __future__ import annotations

import random

import pymysql

from following.sources import SourceDb

KEYS = 60


def transaction(draw: random.Random) -> list[str]:
    """The statements of one transaction, on the tables a and b."""
    def one() -> str:
        table, a, b, v = draw.choice("ab"), draw.randrange(KEYS), draw.randrange(KEYS), draw.randrange(1000)
        return draw.choice([
            f"REPLACE INTO {table} VALUES ({a}, {v}, {v})", f"INSERT IGNORE INTO {table} VALUES ({a}, {v}, NULL)",
            f"UPDATE {table} SET v = v + 1 WHERE id BETWEEN {a} AND {b}", f"DELETE FROM {table} WHERE id = {a}",
            f"UPDATE IGNORE {table} SET id = {a} WHERE id = {b}",
            f"DELETE FROM {table} WHERE id BETWEEN {a} AND {a + 3}",
            f"INSERT INTO {table} VALUES ({a}, 1, {v}) ON DUPLICATE KEY UPDATE u = NULL",
            f"UPDATE {table} SET id = -id ORDER BY id LIMIT {draw.randrange(4)}",
            f"INSERT IGNORE INTO {table} SELECT id + {b}, v, NULL FROM {draw.choice('ab')}" if draw.random() < 0.2
            else f"DELETE FROM {table} WHERE id > {KEYS + a}"])

    return [one() for _ in range(draw.choice([1, 1, 2, 5]))]


def write(source: SourceDb, draw: random.Random, count: int) -> None:
    """So many transactions, some rolled back, and now and then a statement that commits by itself."""
    with source.connect() as connection, connection.cursor() as cursor:
        for _ in range(count):
            connection.begin()
            try:
                for statement in transaction(draw):
                    cursor.execute(statement)
            except pymysql.MySQLError:  # a key that is taken, or a deadlock with the other writer
                connection.rollback()
            (connection.rollback if draw.random() < 0.1 else connection.commit)()
            if draw.random() < 0.02:
                cursor.execute(draw.choice(["TRUNCATE a", "FLUSH LOGS", "CREATE OR REPLACE VIEW w AS SELECT 1",
                                            "ALTER TABLE b ENGINE = InnoDB"]))
