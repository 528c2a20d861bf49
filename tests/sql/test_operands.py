"""A column or literal that is not asked for at every level of precedence gives the tree that it gives there."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from noria.core.errors import SqlError
from noria.sql.text import syntax

CASES = Path(__file__).parent.parent
OPERANDS = ["a", "t.a", "`t`.`a`", "d.t.a", "7", "1.5", "'x'", "'x' 'y'", "NULL", "TRUE", "?", "f(a)", "COUNT(*)",
            "t.*", "*", "(a)", "-a", "NOT a", "CASE a WHEN 1 THEN b ELSE c END", "IF(a, b, c)", "a[1]", "any", "`if`",
            "DATE '2020-01-01'", "INTERVAL 1 DAY", "(SELECT a FROM t)"]
OPERATORS = ["=", "<>", "<=>", "<", "<=", ">", ">=", "<<", ">>", "< <", "+", "-", "*", "/", "DIV", "%", "|", "&", "^",
             "||", "&&", "AND", "OR", "XOR", "LIKE", "NOT LIKE", "IN", "IS", "IS NOT", "SOUNDS LIKE", "REGEXP",
             "COLLATE", "->", "AT", "BETWEEN 1 AND", ":=", "", "AS", "MEMBER OF", "ESCAPE"]
ENDS = ["", "FROM t", "WHERE b", "ORDER BY b DESC, c", "LIMIT 1", "UNION SELECT b",
        "AS x FROM t LEFT JOIN u ON a = b", "b", ", b", "FOR UPDATE", "DESC"]
SEEDS = range(6)


def parsed(text: str) -> object:
    """The tree with all that is noted on it, or the error."""
    try:
        tree = syntax.parse_tokens(syntax.tokenize(text), text).tree
    except (SqlError, syntax.SqlglotError) as e:
        return str(e)
    return [(repr(n), n.meta, n.comments) for n in tree.walk()]


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """Parses with all levels."""
    def slow(text: str) -> object:
        with monkeypatch.context() as m:
            m.setattr(syntax._Parser, "_operand", lambda self, ends: None)
            return parsed(text)
    return slow


@pytest.mark.parametrize("seed", SEEDS)
def test_any_expression(seed: int, levels: Callable[[str], object]) -> None:
    chance = random.Random(seed)
    for _ in range(1_500):
        parts = [chance.choice(OPERANDS)]
        for _ in range(chance.randrange(4)):
            parts += [chance.choice(OPERATORS), chance.choice(OPERANDS)]
        text = f"SELECT {' '.join(parts)} {chance.choice(ENDS)}"
        assert parsed(text) == levels(text), text


def test_the_texts_of_other_tests(levels: Callable[[str], object]) -> None:
    texts = {line for at in ("sql/golden", "logic/cases") for file in (CASES / at).glob("*.*")
             for line in file.read_text().splitlines() if line[:6].upper() in ("SELECT", "INSERT", "UPDATE", "DELETE")}
    assert len(texts) > 300
    for text in texts:
        assert parsed(text) == levels(text), text
