"""Answers of many rows: the same in every way to ask, and made beside the event loop, which serves others meanwhile."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from noria.core import order
from noria.core.limits import OFF_LOOP_ROWS
from noria.server import rows
from noria.server.answering import result_finish, view_lookups
from noria.server.http import wire
from server.local_services import LocalServices

ROWS = OFF_LOOP_ROWS + 500
SOME = [(i, 1, None if i % 5 == 0 else f"s{i % 97}", i * 7919 % ROWS) for i in range(ROWS)]
QUERIES = ("SELECT id, k, s, n FROM t WHERE k = 1", "SELECT id, k, s, n FROM t",
           "SELECT id, k, s, n FROM t WHERE k IN (1, 2)", "SELECT id, k, s, n FROM t WHERE k = 1 AND n >= -1")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServices]:
    with LocalServices(tmp_path_factory.mktemp("large")) as local:
        local.run("CREATE TABLE t (id INT PRIMARY KEY, k INT, s VARCHAR(9), n INT, INDEX (k))")
        for i in range(0, ROWS, 2_000):
            rows = ", ".join(f"({i}, {k}, {'NULL' if s is None else repr(s)}, {n})" for i, k, s, n in SOME[i:i + 2_000])
            local.run(f"INSERT INTO t VALUES {rows}")
        yield local


def asked(local: LocalServices, text: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    body = json.dumps({"sql": text, "parameters": parameters}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{local.port}/sql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [tuple(r) for r in json.loads(answer.read())["rows"]]


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads that make Python values, order, or encode many rows."""
    seen: list[str] = []

    def watched(function: Any, many: Any) -> Any:
        def watching(*arguments: Any) -> Any:
            if many(*arguments) > OFF_LOOP_ROWS:
                seen.append(threading.current_thread().name)
            return function(*arguments)

        return watching

    for module in (view_lookups, result_finish):
        monkeypatch.setattr(module, "python_rows", watched(rows.python_rows, lambda table, width: len(table)))
    monkeypatch.setattr(result_finish, "sort_rows", watched(result_finish.sort_rows, lambda found, *_: len(found)))
    monkeypatch.setattr(wire, "json_body", watched(wire.json_body, lambda outcomes, about: len(outcomes[0].rows)))
    return seen


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("turn", ["first", "from shared memory"])
def test_every_row_beside_the_loop(local: LocalServices, makers: list[str], text: str, turn: str) -> None:
    assert sorted(asked(local, text, [])) == SOME
    assert makers  # as JSON; the values are made on the way
    assert "noria" not in makers, "the loop's thread made them"


def test_values_as_parameters(local: LocalServices, makers: list[str]) -> None:
    text = QUERIES[0].replace("1", "?")
    for _ in range(2):
        assert sorted(asked(local, text, [1])) == SOME
        assert asked(local, text, [9]) == []
    assert makers and "noria" not in makers


def test_their_order(local: LocalServices, makers: list[str]) -> None:
    local.run("CREATE VIEW by_s AS SELECT id, k, s, n FROM t WHERE k = ? ORDER BY s DESC, n")
    want = sorted(SOME, key=lambda r: r[3])
    want.sort(key=lambda r: (r[2] is not None, r[2] or ""), reverse=True)
    for _ in range(2):
        assert asked(local, "SELECT * FROM by_s WHERE k = 1", []) == want
    assert makers and "noria" not in makers


def test_pieces_are_sorted_as_the_whole_is() -> None:
    rows = [(i * 7919 % 101, i) for i in range(3 * OFF_LOOP_ROWS + 7)]

    def key(row: Any) -> tuple[bool, Any]:
        return True, row[0]

    for descending in (False, True):
        assert order._sorted(rows, key, descending) == sorted(rows, key=key, reverse=descending)


def test_pieces_are_read_as_the_whole_is() -> None:
    columns = [list(range(2 * OFF_LOOP_ROWS + 7)), [None if i % 3 else str(i) for i in range(2 * OFF_LOOP_ROWS + 7)]]
    table = pa.table({"a": columns[0], "b": columns[1], "rest": columns[0]})
    assert rows.python_rows(table, 2) == list(zip(*columns, strict=True))
