"""Whether what a transaction has read still holds, under random interleavings: as reading everything again says."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from noria.core.expressions.expr import Call, Expr, col, const
from noria.core.limits import READ_CONDITIONS, READ_KEYS
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import TableRead
from noria.core.types import BOOL, INT
from noria.storage.tables.table import Changed
from noria.storage.transactions import history as histories
from noria.storage.transactions.history import History
from noria.storage.transactions.read_notes import ReadNotes, conflict

Row = tuple[int, int]  # the key, a value
SYMBOLS = PlainSymbols()
KEY, VALUE = col(0, INT), col(1, INT)


def of(expr: Expr, op: str, value: int) -> Expr:
    return Call(BOOL, True, op, (expr, const(value, INT)))


def key(row: Row) -> bytes:
    return bytes([row[0]])


def side(rows: Sequence[Row]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array(rows, np.int64).reshape(len(rows), 2).T


def changed(removed: Sequence[Row], added: Sequence[Row]) -> Changed:
    return list(map(key, removed)), side(removed), list(map(key, added)), side(added)


def own_keys(table: str, family: str, keys: list[bytes], rows: object) -> list[bytes]:
    return keys


def test_only_later_commits_count() -> None:
    history, notes = History(), ReadNotes()
    history.keep("t")
    history.record({"a": changed([], [(1, 10)])})
    notes.read("a", of(KEY, "eq", 1), history.position)
    assert conflict(notes, [], history, {}, own_keys, SYMBOLS) is None
    history.record({"a": changed([(1, 10)], [(1, 11)])})
    assert conflict(notes, [], history, {}, own_keys, SYMBOLS) == "a"


def test_what_is_committed_in_the_same_call_counts() -> None:
    history, notes = History(), ReadNotes()
    history.keep("t")
    notes.read("a", of(VALUE, "gt", 5), history.position)
    assert conflict(notes, [], history, {"a": changed([], [(1, 5)])}, own_keys, SYMBOLS) is None
    assert conflict(notes, [], history, {"b": changed([], [(1, 6)])}, own_keys, SYMBOLS) is None
    assert conflict(notes, [], history, {"a": changed([], [(1, 6)])}, own_keys, SYMBOLS) == "a"


def test_what_is_unknown_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    history, notes = History(), ReadNotes()
    history.keep("t")
    notes.read("a", of(KEY, "eq", 9), history.position)
    history.replaced("b")
    assert conflict(notes, [], history, {}, own_keys, SYMBOLS) is None
    history.replaced("a")
    assert conflict(notes, [], history, {}, own_keys, SYMBOLS) == "a"
    history, notes = History(), ReadNotes()
    monkeypatch.setattr(histories, "HISTORY_ROWS", 3)
    history.keep("t")
    notes.read("a", of(KEY, "eq", 9), history.position)
    for n in range(5):
        history.record({"b": changed([], [(n, n)])})
    assert conflict(notes, [], history, {}, own_keys, SYMBOLS) == "a"


def test_a_history_is_kept_only_while_somebody_needs_it() -> None:
    history = History()
    assert not history
    history.keep("t")
    history.record({"a": changed([], [(1, 1)])})
    history.open("u")
    history.record({"a": changed([], [(2, 2)])})
    assert len(history.later(0, "a") or ()) == 2
    history.close("t")
    assert [c for c, _ in history.later(1, "a") or ()] == [2]
    history.close("u")
    assert not history and history.later(0, "a") == []


def test_too_many_notes_become_coarser() -> None:
    history, notes = History(), ReadNotes()
    history.keep("t")
    for n in range(READ_CONDITIONS + 1):
        notes.read("a", of(KEY, "eq", 1000 + n), n)
    assert notes.conditions == {"a": {None: 0}}
    notes.read("a", of(KEY, "eq", 1), 5)
    assert notes.conditions == {"a": {None: 0}}
    notes.looked_up("b", ((f, n.to_bytes(4, "big")) for f in "xy" for n in range(READ_KEYS)), 7)
    assert notes.conditions["b"] == {None: 7} and not notes.keys


@pytest.mark.parametrize("seed", range(150))
def test_a_transaction_commits_only_if_it_would_read_the_same_again(seed: int) -> None:
    """Several transactions read by conditions and by keys, while others commit; each check is compared with reading
    again.  A conflict without a change of what was read is possible only if that changed, and changed back."""
    rng = random.Random(seed)
    history, table, touched = History(), dict[int, int](), 0
    notes: dict[str, tuple[ReadNotes, list[tuple[Expr | None, int | None, list[Row]]]]] = {}
    reads: dict[str, list[TableRead]] = {}
    for step in range(60):
        name = f"t{rng.randrange(3)}"
        if name not in notes:
            history.keep(name)
            notes[name], reads[name] = (ReadNotes(), []), []
        own, seen = notes[name]
        draw = rng.random()
        if draw < 0.3:
            where = rng.choice([None, of(KEY, "eq", rng.randrange(8)), of(VALUE, "gt", rng.randrange(8)),
                                of(VALUE, "le", rng.randrange(3))])
            if rng.random() < 0.5:
                own.read("a", where, history.position)
            else:
                own.marks.append(history.position)
                reads[name].append(TableRead("a", where, len(own.marks) - 1))
            seen.append((where, None, found(table, where)))
        elif draw < 0.45:
            at = rng.randrange(8)
            own.looked_up("a", [("f", bytes([at]))], history.position)
            seen.append((None, at, [(at, table[at])] if at in table else []))
        elif draw < 0.8:
            history.record({"a": commit(rng, table)})
        else:
            wrong = conflict(own, reads[name], history, {}, own_keys, SYMBOLS)
            same = all(rows == (found(table, where) if at is None else [(k, v) for k, v in table.items() if k == at])
                       for where, at, rows in seen)
            assert wrong is not None or same, f"seed {seed}, step {step}"
            touched += wrong is not None and not same
            history.close(name)
            del notes[name], reads[name]
    assert not touched or history.position


def commit(rng: random.Random, table: dict[int, int]) -> Changed:
    at = rng.randrange(8)
    removed = [(at, table.pop(at))] if at in table else []
    added = [(at, rng.randrange(9))] if rng.random() < 0.7 else []
    table.update(added)
    return changed(removed, added)


def found(table: dict[int, int], where: Expr | None) -> list[Row]:
    """The rows of a condition, by an evaluation of its own."""
    def holds(row: Row) -> bool:
        if where is None:
            return True
        assert isinstance(where, Call)
        value, bound = row[where.args[0].index], where.args[1].value
        return {"eq": value == bound, "gt": value > bound, "le": value <= bound}[where.op]

    return sorted(row for row in table.items() if holds(row))
