"""Keys and ranges of a snapshot: in shared memory while nobody has changed them, else from workers."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, run, until

ROWS = 60
Table = dict[int, int]
SELECTS: dict[str, Callable[[Table, int, int], list[tuple[Any, ...]]]] = {
    "SELECT v FROM t WHERE id = {low}": lambda t, low, high: [(t[low],)] if low in t else [],
    "SELECT id, v FROM t WHERE id BETWEEN {low} AND {high}":
        lambda t, low, high: [(n, t[n]) for n in sorted(t) if low <= n <= high],
    "SELECT v FROM t WHERE id BETWEEN {low} AND {high} ORDER BY v DESC, id":
        lambda t, low, high: [(t[n],) for n in sorted(t, key=lambda n: (-t[n], n)) if low <= n <= high],
    "SELECT id FROM t WHERE id >= {low} AND id < {high} ORDER BY id LIMIT 3":
        lambda t, low, high: [(n,) for n in sorted(t) if low <= n < high][:3],
    "SELECT SUM(v), COUNT(*) FROM t WHERE id BETWEEN {low} AND {high}":
        lambda t, low, high: [_sums([t[n] for n in t if low <= n <= high])],
    "SELECT DISTINCT v FROM t WHERE id BETWEEN {low} AND {high} ORDER BY v":
        lambda t, low, high: [(v,) for v in sorted({t[n] for n in t if low <= n <= high})],
}


def _sums(values: list[int]) -> tuple[Any, ...]:
    return (sum(values) if values else None, len(values))


def _selects(connection: pymysql.Connection, chance: random.Random, table: Table) -> None:
    """Ask at random, and compare with the model."""
    for _ in range(chance.randrange(1, 5)):
        text, expected = chance.choice([*SELECTS.items()])
        low = chance.randrange(-2, ROWS + 5)
        high = low + chance.choice([0, 3, 10, 70])
        found = run(connection, text.format(low=low, high=high))
        rows = expected(table, low, high)
        assert found == rows if "ORDER" in text else sorted(found) == rows, (text, low, high)


def _write(connection: pymysql.Connection, chance: random.Random, table: Table) -> None:
    key, value = chance.randrange(ROWS), chance.randrange(8)
    if key not in table:
        run(connection, f"INSERT INTO t VALUES ({key}, {value})")
        table[key] = value
    elif chance.random() < 0.3:
        run(connection, f"DELETE FROM t WHERE id = {key}")
        del table[key]
    else:
        run(connection, f"UPDATE t SET v = {value} WHERE id = {key}")
        table[key] = value


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_a_snapshot_stays_as_it_was(tmp_path: Path, seed: int, workers: int) -> None:
    chance = random.Random(seed)
    server = LocalServer(tmp_path / "data", workers=workers)
    try:
        readers, writer = [server.connect() for _ in range(3)], server.connect()
        run(writer, "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)")
        now: Table = {}
        seen: list[Table | None] = [None] * len(readers)
        for _ in range(140):
            n = chance.randrange(len(readers))
            snapshot = seen[n]
            if chance.random() < 0.35:
                _write(writer, chance, now)
            elif snapshot is None:
                run(readers[n], "BEGIN")
                seen[n] = dict(now)
                run(readers[n], "SELECT COUNT(*) FROM t")
                _selects(readers[n], chance, now)
            elif chance.random() < 0.2:
                run(readers[n], "ROLLBACK")
                seen[n] = None
                _selects(readers[n], chance, now)
            else:
                _selects(readers[n], chance, snapshot)
        server.validate()
    finally:
        server.close()


def test_a_transaction_reads_its_own_row_instead_of_a_kept_reply(tmp_path: Path) -> None:
    server = LocalServer(tmp_path / "data")
    try:
        a, b = server.connect(), server.connect()
        run(a, "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 10), (2, 20)")
        text = "SELECT v FROM t WHERE id = 1"
        for _ in range(3):
            run(a, "BEGIN")
            assert run(a, text) == [(10,)] and run(a, text) == [(10,)]
            run(a, "COMMIT")
        run(a, "BEGIN")
        assert run(a, text) == [(10,)]
        run(b, "UPDATE t SET v = 11 WHERE id = 1")
        assert run(b, text) == [(11,)] and run(a, text) == [(10,)]
        run(a, "UPDATE t SET v = v + 100 WHERE id = 1")
        assert run(a, text) == [(111,)] and run(a, text) == [(111,)] and run(b, text) == [(11,)]
        run(a, "ROLLBACK")
        assert run(a, text) == [(11,)]
    finally:
        server.close()


def test_a_select_over_a_large_table_reads_it_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are those of the snapshot with the transaction's own, whatever others write between the slices."""
    monkeypatch.setattr("noria.server.answering.view_lookups.TRANSACTION_READ_ROWS", 1_000)
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.FIRST_ROWS", 16)
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.MOST_ROWS", 16)
    server, chance = LocalServer(tmp_path / "data", workers=1), random.Random(5)
    try:
        a, b = server.connect(), server.connect()
        run(a, "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL, s VARCHAR(20))")
        rows = {n: (n % 7, f"Text {n % 5}") for n in range(3_000)}
        run(a, "INSERT INTO t VALUES " + ", ".join(f"({n}, {v}, '{s}')" for n, (v, s) in rows.items()))
        run(a, "BEGIN", "SELECT COUNT(*) FROM t WHERE id = 1")
        run(b, "UPDATE t SET v = 100 WHERE id IN (5, 1500)", "DELETE FROM t WHERE id = 2999",
            "INSERT INTO t VALUES (-1, 100, 'new')")
        run(a, "UPDATE t SET v = v + 10, s = 'Mine' WHERE id IN (7, 2000)", "DELETE FROM t WHERE id = 8",
            "INSERT INTO t VALUES (9000, 3, 'text 1')")
        rows |= {7: (rows[7][0] + 10, "Mine"), 2000: (rows[2000][0] + 10, "Mine"), 9000: (3, "text 1")}
        del rows[8]
        expected: dict[str, list[tuple[Any, ...]]] = {
            "SELECT COUNT(*), SUM(v) FROM t WHERE v + 0 >= 0": [(len(rows), sum(v for v, _ in rows.values()))],
            "SELECT v, COUNT(*) FROM t WHERE v * 2 < 1000 GROUP BY v ORDER BY v":
                [(v, sum(v == w for w, _ in rows.values())) for v in sorted({v for v, _ in rows.values()})],
            "SELECT id FROM t WHERE s LIKE '%e' ORDER BY v DESC, id LIMIT 3": [(2000,), (7,)],
            "SELECT MAX(id), MIN(id) FROM t WHERE s = 'text 1' AND v < 1000":
                [(9000, min(n for n, (_, s) in rows.items() if s.lower() == "text 1"))],
        }
        for text, want in expected.items():
            for _ in range(50):  # until there were writes between the slices: the machine may be busy
                asked, writes = Waiting(a, text), 0
                while asked.waits():
                    run(b, f"UPDATE t SET v = 100 + {writes}, s = 'Late' WHERE id = {chance.randrange(10, 1_999)}")
                    writes += 1
                assert asked.end() is None and asked.rows == want, text
                if writes > 3:
                    break
            assert writes > 3, "there were writes between the slices"
        run(a, "ROLLBACK")
        server.validate()
    finally:
        server.close()


def test_a_snapshot_of_a_table_that_is_written_all_the_time_fills_the_view(tmp_path: Path) -> None:
    """A key that only transactions read, after others have written the table, is in shared memory in the end."""
    server = LocalServer(tmp_path / "data", workers=1)
    try:
        a, b = server.connect(), server.connect()
        run(a, "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES " + ", ".join(f"({n}, {n})" for n in range(500)))
        texts = ("SELECT v FROM t WHERE id = {}", "SELECT v FROM t WHERE id BETWEEN {} AND 12")
        for text in texts:
            for n in (400, 401, 402):
                run(a, text.format(n))
        reads = server.executor.reads

        def is_local() -> bool:
            run(a, "BEGIN", "SELECT COUNT(*) FROM t WHERE id = 300")
            run(b, "UPDATE t SET v = v + 1 WHERE id = 499")
            before = reads.one_shots
            assert run(a, texts[0].format(7)) == [(7,)] and run(a, texts[1].format(9)) == [(9,), (10,), (11,), (12,)]
            here = reads.one_shots == before
            run(a, "COMMIT")
            return here

        until(is_local)
    finally:
        server.close()


Rows = dict[int, tuple[Any, ...]]
COLUMNS = "id, k, c, d, f"
POINT = f"SELECT {COLUMNS} FROM t WHERE id = ?"
OF_ROWS: dict[str, Callable[[list[tuple[Any, ...]]], list[tuple[Any, ...]]]] = {
    f"SELECT {COLUMNS} FROM t WHERE id BETWEEN ? AND ?": lambda rows: rows,
    "SELECT c, k FROM t WHERE id BETWEEN ? AND ? ORDER BY k, id": lambda rows: [
        (c, k) for _, k, c, _, _ in sorted(rows, key=lambda r: (r[1] is not None, r[1] or 0, r[0]))],
    "SELECT SUM(k), COUNT(*), COUNT(c), MIN(k), MAX(k), SUM(d) FROM t WHERE id BETWEEN ? AND ?": lambda rows: [
        (_total(rows, 1), len(rows), sum(r[2] is not None for r in rows), _least(rows, 1, min), _least(rows, 1, max),
         _total(rows, 3))],
    "SELECT DISTINCT c FROM t WHERE id BETWEEN ? AND ? ORDER BY c": lambda rows: [
        (c,) for c in sorted({r[2] for r in rows}, key=lambda c: (c is not None, c))],
}


def _total(rows: list[tuple[Any, ...]], at: int) -> Any:
    values = [r[at] for r in rows if r[at] is not None]
    return sum(values) if values else None


def _least(rows: list[tuple[Any, ...]], at: int, of: Callable[..., Any]) -> Any:
    return of((r[at] for r in rows if r[at] is not None), default=None)


def _changes(chance: random.Random, now: Rows, write: Callable[[str], Any]) -> None:
    """Change some rows at random, here and in the table."""
    key = chance.randrange(40)
    if chance.random() < 0.3:
        low = chance.randrange(40)
        write(f"UPDATE t SET k = k + 1 WHERE id BETWEEN {low} AND {low + 3}")
        now.update({n: (n, None if r[1] is None else r[1] + 1, *r[2:]) for n, r in now.items() if low <= n <= low + 3})
    elif key not in now:
        k, c = chance.choice([None, 1, 2, 3]), chance.choice([None, "x", "y", "zz"])
        d, f = chance.choice([None, Decimal("1.50"), Decimal("-2.25")]), chance.choice([None, 0.5])
        write(f"INSERT INTO t ({COLUMNS}) VALUES ({key}, " + ", ".join(
            "NULL" if v is None else repr(str(v)) for v in (k, c, d, f)) + ")")
        now[key] = (key, k, c, d, f)
    elif chance.random() < 0.4:
        write(f"DELETE FROM t WHERE id = {key}")
        del now[key]
    elif key + 40 not in now and chance.random() < 0.3:
        write(f"UPDATE t SET id = {key + 40} WHERE id = {key}")
        now[key + 40] = (key + 40, *now.pop(key)[1:])
    else:
        write(f"UPDATE t SET c = 'new' WHERE id = {key}")
        now[key] = (*now[key][:2], "new", *now[key][3:])


@pytest.mark.parametrize("seed", range(3))
def test_keys_that_were_changed_since_a_snapshot_need_no_worker(tmp_path: Path, seed: int) -> None:
    """Their rows before the change came with the answers of the commits."""
    chance, server = random.Random(seed), LocalServer(tmp_path / "data", workers=1)
    try:
        readers, writer = [server.connector() for _ in range(3)], server.connect()
        cursors = [{text: r.cursor(prepared=True) for text in (POINT, *OF_ROWS)} for r in readers]

        def ask(n: int, text: str, *values: int) -> list[tuple[Any, ...]]:
            cursors[n][text].execute(text, values)
            return list(cursors[n][text].fetchall())

        run(writer, "CREATE TABLE t (id INT PRIMARY KEY, k INT, c VARCHAR(20), d DECIMAL(8, 2), f DOUBLE)")
        now: Rows = {}
        for _ in range(60):
            _changes(chance, now, lambda text: run(writer, text))
        for n in range(90):
            ask(0, POINT, n)
            for text in OF_ROWS:
                ask(0, text, n, n)
        seen: list[Rows | None] = [None] * len(readers)
        asked, before = 0, server.one_shots()
        for _ in range(300):
            n = chance.randrange(len(readers))
            snapshot = seen[n]
            if chance.random() < 0.4:
                run(writer, "BEGIN")
                for _ in range(chance.randrange(4)):
                    _changes(chance, now, lambda text: run(writer, text))
                run(writer, "COMMIT")
            elif snapshot is None:
                readers[n].start_transaction()
                ask(n, POINT, 1)
                seen[n] = dict(now)
            elif chance.random() < 0.15:
                readers[n].commit()
                seen[n] = None
            else:
                low, asked = chance.randrange(85), asked + 2
                high = min(low + chance.choice([0, 1, 5, 80]), 89)
                assert ask(n, POINT, low) == [r for r in [snapshot.get(low)] if r is not None]
                text, expected = chance.choice([*OF_ROWS.items()])
                rows = [snapshot[key] for key in sorted(snapshot) if low <= key <= high]
                assert ask(n, text, low, high) == expected(rows), (seed, text, low, high)
        assert asked > 160 and server.one_shots() - before < asked / 8
        server.validate()
    finally:
        server.close()


def _is_locked(connection: pymysql.Connection, select: str) -> bool:
    try:
        run(connection, select + " FOR UPDATE NOWAIT")
    except pymysql.OperationalError as e:
        assert e.args[0] == 3572
        return True
    return False


@pytest.mark.parametrize("workers", [1, 3])
def test_a_write_that_is_tried_again_after_a_deadlock_is_not_in_earlier_snapshots(tmp_path: Path, workers: int) -> None:
    """A statement without a transaction over several workers is a deadlock's victim, and then tried by itself."""
    server = LocalServer(tmp_path / "data", workers=workers)
    try:
        holder, alone, reader = (server.connect() for _ in range(3))
        run(holder, "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)",
            "INSERT INTO t VALUES " + ", ".join(f"({n}, 0)" for n in range(ROWS)))
        select, keys = "SELECT v FROM t WHERE id = {}", range(ROWS)
        for key in keys:
            assert run(reader, select.format(key)) == [(0,)]  # in a view from now on
        run(holder, "BEGIN", select.format(0) + " FOR UPDATE")
        blocked = Waiting(alone, "UPDATE t SET v = 1")
        if workers > 1:
            until(lambda: any(_is_locked(reader, select.format(key)) for key in keys[1:]))
        for key in keys:
            run(holder, select.format(key) + " FOR UPDATE")
        run(reader, "BEGIN")
        assert run(reader, select.format(1)) == [(0,)]
        run(holder, "ROLLBACK")
        assert blocked.end() is None
        assert [run(reader, select.format(key)) for key in keys] == [[(0,)]] * ROWS
        run(reader, "COMMIT")
        assert [run(reader, select.format(key)) for key in keys] == [[(1,)]] * ROWS
    finally:
        server.close()
