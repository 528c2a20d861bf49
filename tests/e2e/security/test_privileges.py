"""privileges.txt: who is refused here is refused at MariaDB, with the same number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb

SETUP = """CREATE DATABASE shop; CREATE DATABASE elsewhere; CREATE TABLE elsewhere.t (id INT PRIMARY KEY);
CREATE TABLE shop.items (id INT PRIMARY KEY, name VARCHAR(20), price INT);
CREATE TABLE shop.secrets (id INT PRIMARY KEY, word VARCHAR(20)); INSERT INTO shop.items VALUES (1, 'a', 3);
CREATE VIEW shop.v AS SELECT id, name FROM shop.items; CREATE USER app IDENTIFIED BY 'word'"""
OTHER_NUMBERS = {  # where MariaDB differs from MySQL 8, whose number is in the file
    "DROP USER app": 1227, "CREATE ROLE other": 1227,
    "EXPLAIN SELECT * FROM shop.v": 1345,
    "SELECT i.id FROM shop.items i NATURAL JOIN shop.items j": 0,  # it would tell which prices are equal
}


def groups() -> Iterator[tuple[str, list[tuple[int, str]]]]:
    for block in (Path(__file__).parent / "privileges.txt").read_text().split("\n\n")[1:]:
        grant, *lines = block.strip().splitlines()
        yield grant, [(int(number), text) for number, _, text in (line.partition(" ") for line in lines)]


GROUPS = list(groups())


def number_of(connection: Any, text: str) -> int:
    with connection.cursor() as cursor:
        try:
            cursor.execute(text)
        except pymysql.err.MySQLError as e:
            return int(e.args[0])
    return 0


def run(connection: Any, *texts: str) -> None:
    with connection.cursor() as cursor:
        for text in texts:
            cursor.execute(text)


def set_up(root: Any) -> None:
    run(root, *(text.strip() for text in SETUP.split(";")))


def answers(root: Any, connect: Any, grant: str, lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    run(root, "DROP USER IF EXISTS app", "CREATE USER app IDENTIFIED BY 'word'", *grant.split("; "))
    app = connect()
    try:
        return [(number_of(app, text), text) for _, text in lines]
    finally:
        app.close()
        for text in ("DROP TABLE IF EXISTS shop.made", "DROP VIEW IF EXISTS shop.made_view"):
            run(root, text)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path_factory.mktemp("accounts"))
    set_up(server.connect())
    yield server
    server.close()


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    found = MariaDb(tmp_path_factory.mktemp("oracle"))
    set_up(found.connect(None))
    yield found
    found.close()


@pytest.mark.parametrize(("grant", "lines"), GROUPS, ids=[g for g, _ in GROUPS])
def test_who_is_refused(server: LocalServer, grant: str, lines: list[tuple[int, str]]) -> None:
    found = answers(server.connect(), lambda: server.connect(user="app", password="word"), grant, lines)
    assert found == lines


@needs_mariadb
@pytest.mark.parametrize(("grant", "lines"), GROUPS, ids=[g for g, _ in GROUPS])
def test_mariadb_refuses_the_same(mariadb: MariaDb, grant: str, lines: list[tuple[int, str]]) -> None:
    def connect() -> Any:
        return pymysql.connect(unix_socket=mariadb.socket, user="app", password="word", autocommit=True,
                               ssl_disabled=True)

    found = answers(mariadb.connect(None), connect, grant.replace(" app ", " app "), lines)
    assert found == [(OTHER_NUMBERS.get(text, number), text) for number, text in lines]
