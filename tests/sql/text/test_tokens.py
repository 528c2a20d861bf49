"""Tokens of plain texts: those that sqlglot gives, whatever stands beside what."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from noria.sql.text import syntax

CASES = Path(__file__).parents[2]
WORDS = ["select", "FROM", "a", "t1", "user", "group by", "ORDER  BY", "group", "order", "by", "key", "in", "is",
         "null", "int", "as", "x", "n", "_b", "values", "primary", "double", "defined", "é", "$v", "@v", "null_", "b2"]
OTHERS = ["1", "0", "12.50", "1.", ".5", "1e5", "0x1F", "0b1", "1a", "'x'", "'it''s'", "'a\\'b'", '"d"', '"d""e"',
          "`q`", "`a``b`", "''", "'a\nb'", "<=>", "<=", ">=", "<>", "!=", "<", ">", "=", "==", "=>", "<<", ">>", "->",
          "->>", "-", "--", "-- c\n", "+", "*", "/", "/* c */", "/*! 1 */", "%", "%}", "(", ")", ",", ".", ";", "?",
          "??", ":", ":=", "||", "&&", "|", "&", "^", "~", "!", "#c\n", "{", "}", "[", "\\", "@@x", "\n", "\t", "\r",
          "\x1c", "\u00a0"]
SEEDS = range(8)


def described(tokens: list[syntax.Token]) -> list[tuple[object, ...]]:
    return [(t.token_type, t.text, t.line, t.col, t.start, t.end, t.comments) for t in tokens]


def plain_is_sqlglots(text: str) -> bool:
    """Was it plain?"""
    plain = syntax._PLAIN.tokens(text)
    if plain is None:
        return False
    assert described(plain) == described(syntax._DIALECT.tokenize(text)), text
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_any_mixture(seed: int) -> None:
    chance = random.Random(seed)
    plain = 0
    for _ in range(4_000):
        parts = chance.choices(WORDS, k=6) + chance.choices(OTHERS, k=chance.randrange(6))
        chance.shuffle(parts)
        plain += plain_is_sqlglots(chance.choice(["", " ", " ", "  "]).join(parts))
    assert plain > 100, f"seed {seed}"


def test_every_pair() -> None:
    for first in WORDS + OTHERS:
        for second in WORDS + OTHERS:
            for between in ("", " ", "\n"):
                plain_is_sqlglots(f"a {first}{between}{second} b")


def test_the_texts_of_other_tests() -> None:
    texts = [line for at in ("sql/golden", "logic/cases") for file in (CASES / at).glob("*.*")
             for line in file.read_text().splitlines()]
    plain = 0
    for text in texts:
        try:
            plain += plain_is_sqlglots(text)
        except syntax.SqlglotError:
            raise AssertionError(f"plain, but not for sqlglot: {text}") from None
    assert plain > len(texts) / 3


@pytest.mark.parametrize("text", ["SELECT a, b FROM t WHERE c = 7 AND d IN (?, 'x') ORDER BY b DESC LIMIT 3",
                                  "INSERT INTO t VALUES (1, 'a', -2.5);", "SELECT `a`.`b`\nFROM `a`\n"])
def test_usual_texts_are_plain(text: str) -> None:
    assert plain_is_sqlglots(text)
