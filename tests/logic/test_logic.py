"""Every case of `cases/`, one file per feature, on the embedded runtime.

    pytest tests/logic -k mariadb                           proves the cases themselves
    NORIA_REWRITE_LOGIC=1 pytest tests/logic -k mariadb     writes MariaDB's results into the files; read the diff

On Noria each query runs twice: as the statements before it left the views, and again with everything partial
forgotten, so that what is maintained and what an upquery derives are both compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import INSTALLED, MariaDb
from logic.records import Record, parse, result_lines, show

CASES = Path(__file__).parent / "cases"
REWRITE = bool(os.environ.get("NORIA_REWRITE_LOGIC"))
NAMES = sorted(p.stem for p in CASES.glob("*.test"))
REFUSED = 1235
SPREAD = ("numbered", "unique_without_key")  # what several workers do in other ways
# Cases with queries that are not maintained yet: refused is tolerated in these, wrong never is.
PENDING: frozenset[str] = frozenset()


class Refused(Exception):
    """A statement of a pending case that Noria refuses."""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    server = MariaDb(tmp_path_factory.mktemp("m"))
    yield server
    server.close()


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_case_on_mariadb(name: str, oracle: MariaDb) -> None:
    path = CASES / f"{name}.test"
    connection = oracle.connect(database=f"case_{name}")
    try:
        found = Run(connection, None, name).all(parse(path.read_text()))
    finally:
        connection.close()
    if REWRITE:
        path.write_text(show(found))
    assert show(found) == path.read_text()


@pytest.mark.parametrize("name, workers", [*((n, 1) for n in NAMES), *((n, 2) for n in SPREAD)])
def test_case(name: str, workers: int, tmp_path: Path) -> None:
    server = LocalServer(tmp_path / "data", workers=workers)
    try:
        connection = server.connect()
        Run(connection, server, name).all(parse((CASES / f"{name}.test").read_text()))
        connection.close()
        server.validate()
    finally:
        server.close()


class Run:
    """One file on one server: Noria, or MariaDB when `server` is None."""

    def __init__(self, connection: Any, server: LocalServer | None, name: str):
        self._connection, self._server, self._name = connection, server, name
        self._threshold = 0
        self._shown = "mariadb" if server is None else "noria"
        self._labels: dict[str, list[str]] = {}

    def all(self, records: list[Record]) -> list[Record]:
        """The records with the results that were found; stops at the first that differs."""
        found = []
        for at, record in enumerate(records):
            if record.kind == "halt":
                return found + records[at:]
            try:
                found.append(self._one(record) if record.runs_on(self._shown) else record)
            except Refused:
                return found + records[at:]
        return found

    def _one(self, record: Record) -> Record:
        if record.kind == "hash-threshold":
            self._threshold = int(record.head[0])
        elif record.kind == "forget" and self._server is not None:
            self._server.evict()
        elif record.kind == "statement":
            self._statement(record)
        elif record.kind == "query":
            return self._query(record)
        return record

    def _statement(self, record: Record) -> None:
        want, *more = record.head
        try:
            affected, _ = self._execute(record.text)
        except pymysql.err.MySQLError as e:
            if self._refused(e):
                raise Refused from None  # nothing after it makes sense
            if want == "error" and (not more or int(more[0]) == e.args[0]):
                return
            raise self._differs(record, f"{e}") from None
        if want == "error":
            raise self._differs(record, "it succeeds")
        if want == "count" and affected != int(more[0]):
            raise self._differs(record, f"{affected} rows affected")

    def _query(self, record: Record) -> Record:
        try:
            lines = result_lines(record, self._execute(record.text)[1], self._threshold)
            if self._server is not None:
                self._server.evict()
                again = result_lines(record, self._execute(record.text)[1], self._threshold)
                if again != lines:
                    raise self._differs(record, "derived anew it is\n" + "\n".join(again))
        except pymysql.err.MySQLError as e:
            if self._refused(e):
                return record
            raise self._differs(record, f"{e}") from None
        label = record.head[2] if len(record.head) > 2 else None
        if label is not None and self._labels.setdefault(label, lines) != lines:
            raise self._differs(record, f"the label {label} had\n" + "\n".join(self._labels[label]))
        if not REWRITE and lines != list(record.expected):
            raise self._differs(record, "\n".join(lines))
        return record.with_rows(lines)

    def _execute(self, text: str) -> tuple[int, list[Any]]:
        with self._connection.cursor() as cursor:
            return int(cursor.execute(text)), list(cursor.fetchall())

    def _refused(self, error: pymysql.err.MySQLError) -> bool:
        return bool(self._server is not None and self._name in PENDING and error.args[0] == REFUSED)

    def _differs(self, record: Record, found: str) -> AssertionError:
        wanted = "\n".join((*record.lines(), ""))
        return AssertionError(f"{self._name}.test line {record.line} on {self._shown}:\n{wanted}\nfound:\n{found}")
