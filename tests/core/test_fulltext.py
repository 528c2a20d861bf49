"""Words, searches and relevance of MATCH … AGAINST.  `tests/e2e/aggregates/test_fulltext.py` compares with MariaDB."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Col
from noria.core.expressions.functions import call, literal
from noria.core.expressions.library.fulltext import BINARY, BOOLEAN, parsed, words_of
from noria.core.limits import NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import fold
from noria.core.types import TEXT


@pytest.mark.parametrize(("text", "words"), [
    ("the Quick brown-fox", ["quick", "brown", "fox"]), ("Don't stop", ["don", "stop"]), ("O'Brien's", ["brien"]),
    ("under_score a1b2 12", ["under_score", "a1b2"]), ("Café CRÈME cafe\u0301", ["cafe", "creme", "cafe"]),
    ("x" * 84 + " " + "y" * 85, ["x" * 84]), ("", []), ("--- ... '", []),
    ("日本語 ok", ["日本語"]),
    ("naïve\nline", ["naive", "line"]),
])
def test_words_that_can_be_found(text: str, words: list[str]) -> None:
    assert [w for w, fits in words_of(text, True) if fits] == words


def test_a_binary_collation_keeps_case_and_accents() -> None:
    assert words_of("Café", False) == [("Café", True)]
    assert parsed("café", BINARY).matches(["Café"]) is False
    assert parsed("CAFE", 0).matches(["Café"]) is True


TEXTS = {1: "quick brown fox", 2: "quick dog", 3: "brown dog sleeps", 4: "a fox and the brown dog", 5: None}


@pytest.mark.parametrize(("search", "found"), [
    ("quick", {1, 2}), ("quick sleeps", {1, 2, 3}), ("+quick +brown", {1}), ("+quick -brown", {2}), ("-quick", set()),
    ("+quick sleeps", {1, 2}), ("+brown ~fox", {1, 3, 4}), ("~fox", set()), ("bro*", {1, 3, 4}), ("+d* -qu*", {3, 4}),
    ('"brown dog"', {3, 4}), ('"the brown"', {1, 3, 4}), ('"fox and the brown"', {4}), ('"dog brown"', set()),
    ("+dog +(quick sleeps)", {2, 3}), ("+dog -(quick sleeps)", {4}), ("+the +quick", set()), ("+do quick", set()),
    ("quick-brown", {2}), ("+O'brown", {1, 3, 4}), ("", set()), ("the", set()), ('"to be"', set()),
    ('+"" dog', {2, 3, 4}),
    ("quick%", {1, 2}), ('dog "', {2, 3, 4}), ("+brown (quick dog)", {1, 2, 3, 4}), ("+fox,brown", {1, 4}),
])
def test_boolean_searches(search: str, found: set[int]) -> None:
    wanted = parsed(search, BOOLEAN)
    assert {at for at, text in TEXTS.items() if wanted.matches([text])} == found


@pytest.mark.parametrize("search", [
    "(quick", "quick)", "+", "++quick", "+-quick", "@", "quick **", '"a b"*', "(" * 40 + ")" * 40])
def test_searches_without_meaning_are_errors(search: str) -> None:
    with pytest.raises(SqlError) as e:
        parsed(search, BOOLEAN)
    assert e.value.code == 1064


def test_a_distance_is_refused_by_name() -> None:
    with pytest.raises(SqlError, match="distance after a phrase"):
        parsed('"quick fox" @3', BOOLEAN)


@pytest.mark.parametrize(("search", "found"), [
    ("quick sleeps", {1, 2, 3}), ("+quick -fox", {1, 2, 4}), ('"brown dog"', {3, 4}), ("bro*", set()),
    ("the a to", set())])
def test_natural_language_knows_phrases_and_no_operators(search: str, found: set[int]) -> None:
    wanted = parsed(search, 0)
    assert {at for at, text in TEXTS.items() if wanted.matches([text])} == found


def test_a_phrase_lies_in_one_column() -> None:
    assert parsed('"quick dog"', 0).matches(["a quick", "dog"]) is False
    assert parsed('"quick dog"', 0).matches(["x", None, "quick dog"]) is True


def relevance(search: str, mode: int = 0) -> dict[int, float]:
    wanted = parsed(search, mode)
    counts = [len(TEXTS), *(sum(wanted.count(n, [t]) for t in TEXTS.values()) for n in range(len(wanted.terms)))]
    return {at: found for at, t in TEXTS.items() if (found := wanted.relevance(counts, [t]))}


def test_relevance_is_frequency_times_the_squared_rarity_of_each_word() -> None:
    rare, common = math.log10(5 / 2) ** 2, math.log10(5 / 3) ** 2
    assert relevance("quick") == pytest.approx({1: rare, 2: rare}, rel=1e-6)
    assert relevance("quick brown") == pytest.approx({1: rare + common, 2: rare, 3: common, 4: common}, rel=1e-6)
    assert parsed("dog", 0).relevance([10, 1], ["dog dog dog"]) == pytest.approx(3.0, rel=1e-6)
    assert parsed("dog", 0).relevance([3, 3], ["dog"]) == pytest.approx(math.log10(1.0001) ** 2, rel=1e-6)
    assert parsed("dog dog", 0).relevance([12, 4], ["dog"]) == pytest.approx(math.log10(12 / 8) ** 2, rel=1e-6)


def test_operators_change_relevance() -> None:
    rare, common = math.log10(5 / 2) ** 2, math.log10(5 / 3) ** 2
    assert relevance(">quick <brown", BOOLEAN) == pytest.approx(
        {1: rare + common, 2: 1 + rare, 3: common - 1, 4: common - 1}, rel=1e-5)
    assert relevance("brown ~quick", BOOLEAN)[1] == pytest.approx(rare + common - 1, rel=1e-5)
    assert relevance("+brown ~quick", BOOLEAN)[1] == pytest.approx(common, rel=1e-5)


def test_the_screen_leaves_no_row_out() -> None:
    """The rows that it chooses are among others those that a search finds."""
    chance = random.Random(3)
    some = ["quick", "Fox", "dog", "café", "the", "do", "straße", "foxes"]
    texts = [" ".join(chance.choices(some, k=chance.randrange(6))) for _ in range(60)]
    folded = pa.array([fold(t) for t in texts], pa.large_string())
    for _ in range(300):
        parts = [chance.choice(("", "", "+", "-", "~", ">", "<")) + chance.choice(
            (*some, "fo*", '"dog quick"', "(fox +dog)", "(>quick -dog)")) for _ in range(chance.randint(1, 3))]
        wanted = parsed(" ".join(parts), BOOLEAN)
        for at, may in enumerate(wanted.may_match([folded]).to_pylist()):
            assert may or not wanted.matches([texts[at]]), (parts, texts[at])
        for at, may in enumerate(wanted.may_count([folded]).to_pylist()):
            assert may or not any(wanted.count(n, [texts[at]]) for n in range(len(wanted.terms)))


def test_many_rows_are_as_each_alone() -> None:
    symbols = PlainSymbols()
    texts = ["quick fox", None, "a dog", "Fox café", "", "fox fox"] * 5
    codes = np.array([[NULL_CODE if t is None else symbols.intern(t) for t in texts]], np.int64)
    search, column = literal("fox -dog"), Col(TEXT, True, 0)
    for e in (call("ft_matches", search, literal(BOOLEAN), column),
              call("ft_counts", search, literal(BOOLEAN), literal(0), column),
              call("ft_relevance", search, literal(BOOLEAN), literal("30 15 5"), column)):
        node = evaluate.compile(e)
        together = node(Batch.of(codes), symbols).tolist()
        alone = [node(Batch.of(codes[:, at : at + 1]), symbols).tolist()[0] for at in range(len(texts))]
        assert together == alone and len(set(alone)) > 1
