"""Patterns: LIKE takes no longer than its texts are long, REGEXP ends in time, and both find what they should."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.core.expressions.evaluate import compile as compiled
from noria.core.expressions.evaluate_text import like_pattern
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.expressions.library.text import is_quick, regexp_like
from noria.core.limits import ERROR_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import TEXT


def plainly(pattern: str, escape: str) -> re.Pattern[str]:
    """One place of the pattern after the other, tried in every way."""
    out, at = "", 0
    while at < len(pattern):
        c = pattern[at]
        if c == escape and at + 1 < len(pattern):
            at += 1
            out += re.escape(pattern[at])
        else:
            out += ".*" if c == "%" else "." if c == "_" else re.escape(c)
        at += 1
    return re.compile(out, re.DOTALL)


def test_like_finds_what_trying_every_way_finds() -> None:
    rng = random.Random(7)
    for _ in range(20_000):
        pattern = "".join(rng.choices("%%_ab\\\n", k=rng.randrange(8)))
        text = "".join(rng.choices("aab\n%_", k=rng.randrange(9)))
        quick, slow = like_pattern(pattern, "\\").fullmatch(text), plainly(pattern, "\\").fullmatch(text)
        assert (quick is None) == (slow is None), (pattern, text)


@pytest.mark.timeout(60)
def test_like_with_many_wildcards_ends() -> None:
    assert like_pattern("%a" * 30 + "%b", "\\").fullmatch("a" * 20_000) is None


@pytest.mark.timeout(60)
def test_a_regular_expression_that_would_not_end_is_an_evaluation_error() -> None:
    symbols = PlainSymbols()
    column = np.array([[symbols.intern("a" * 60 + "!" + str(i)) for i in range(40)]], np.int64)
    evaluate = compiled(call("regexp_like", col(0, TEXT), const("(a|aa)+$", TEXT), const("", TEXT)))
    assert (evaluate(Batch.of(column), symbols) == ERROR_CODE).all()
    assert not is_quick("(a|aa)+$") and is_quick("^a+b?$") and is_quick("[[:digit:]]")
    with pytest.raises(TimeoutError):
        regexp_like("a" * 60 + "!", "(a|aa)+$")
