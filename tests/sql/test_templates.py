"""Writes whose expressions are filled into a template equal those that are resolved for their values."""

from __future__ import annotations

import random
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.core.expressions.functions import canonical
from noria.core.statements import Update
from noria.sql.expressions import templates
from noria.sql.parse import PlannedStatement, bind, prepare
from sql.catalogs import DictCatalog

ASSIGNED = ("i = i + ?", "i = ?", "s = ?", "s = CONCAT(s, ?)", "d = d * ?", "m = m - ?", "day = ?",
            "i = IF(? > i, ?, 1)", "i = ?, d = i + 1", "s = LEFT(s, ?)", "d = ROUND(d * ?, 2)", "i = i << ?",
            "day = NOW() + INTERVAL ? DAY", "i = COALESCE(?, i)", "i = CASE ? WHEN 1 THEN 2 ELSE i END", "m = -? * m",
            "i = i DIV ?", "day = NOW()")
CONDITIONS = ("id = ?", "id = ? AND i > ?", "s = ? OR s = ?", "s LIKE ?", "id IN (?, ?, ?)", "i BETWEEN ? AND ?", "?",
              "day > ?", "id = ? + 1", "NOT (id <=> ?)", "? < i AND s <> ?", "m >= ?", "day < NOW() AND id = ?",
              "i = ? OR i = ? OR id = ?", "id = ABS(?)", "i & ?", "(id, i) = (?, ?)")


def catalog() -> DictCatalog:
    return DictCatalog("CREATE TABLE t (id BIGINT PRIMARY KEY, i INT, d DOUBLE, m DECIMAL(10, 2), s TEXT, day DATE)")


def value(chance: random.Random) -> Any:
    return chance.choice((
        chance.randrange(-3, 4), chance.randrange(-2**63, 2**63), chance.randrange(10**6), 2**chance.randrange(70),
        chance.uniform(-1e9, 1e9), float(chance.randrange(-2, 3)), 10.0**chance.randrange(-300, 300), None, True,
        chance.choice(("", "a", "A", "7", "-1.5", "2024-01-31", "é%_\\", "x" * 70_000, " 5 ", "\0"))))


def outcome(prepared: PlannedStatement, values: list[Any]) -> object:
    try:
        made = bind(prepared, values)
        assert isinstance(made, Update)
        return made._replace(where=made.where and canonical(made.where),
                             assignments=tuple((at, canonical(e)) for at, e in made.assignments))
    except SqlError as e:
        return e.code, e.message


@pytest.mark.parametrize("assigned", ASSIGNED)
def test_random_values_give_what_resolving_gives(assigned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(assigned)
    for condition in CONDITIONS:
        text = f"UPDATE t SET {assigned} WHERE {condition}"
        used = prepare(text, catalog())
        for _ in range(3):
            values = [value(chance) for _ in range(used.parameters)]
            for n in range(6):
                if n:  # other values of the same types
                    values = [_alike(v, chance) for v in values]
                mine = outcome(used, values)
                with monkeypatch.context() as patch:
                    patch.setattr(templates, "LEARN_AFTER", 10**9)
                    assert mine == outcome(prepare(text, catalog()), values), (text, values)


def _alike(v: Any, chance: random.Random) -> Any:
    while type(other := value(chance)) is not type(v):
        pass
    return other


@pytest.mark.parametrize(("text", "values", "filled"), [
    ("UPDATE t SET i = i + ? WHERE id = ?", (1, 2), True),
    ("UPDATE t SET s = ?, i = ? WHERE s = ? OR id = ?", ("a", None, "b", 3), True),
    ("DELETE FROM t WHERE id = ? AND s LIKE ?", (1, "a%"), True),
    ("INSERT INTO t (id) VALUES (?) ON DUPLICATE KEY UPDATE i = i + ?", (1, 2), True),
    ("UPDATE t SET i = 1 WHERE day = ?", ("2024-01-01",), False),
    ("UPDATE t SET i = 1 WHERE id = ? + 1", (1,), False),
])
def test_what_is_filled(text: str, values: tuple[Any, ...], filled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, learnt = prepare(text, catalog()), []
    for _ in range(4):
        bind(prepared, values)
    monkeypatch.setattr(templates.Template, "filled", lambda self, values: learnt.append(values) or 1 / 0)
    if filled:
        with pytest.raises(ZeroDivisionError):
            bind(prepared, values)
    else:
        bind(prepared, values)
    assert len(learnt) == filled
