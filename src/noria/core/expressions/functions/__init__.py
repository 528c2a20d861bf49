"""Scalar functions: the argument types, result type and casts of each op.

`call(op, …)` makes all expression trees.  It follows MySQL's rules of types and nullability, and folds constants.
`evaluate.py` and Spark's lowering run the trees.  An op is defined in `numbers.py`, `logic.py` or `failing.py`, whose
statements about its arguments the evaluators rely on, or it is an entry of `library`.
"""

from __future__ import annotations

from noria.core.expressions.evaluate import NEGATED
from noria.core.expressions.functions import failing as failing
from noria.core.expressions.functions import logic as logic
from noria.core.expressions.functions import numbers as numbers
from noria.core.expressions.functions.base import (
    CLOCK,
    FALSE,
    NULL,
    TRUE,
    HexLiteral,
    as_moment,
    as_number,
    call,
    cast,
    common_type,
    comparable,
    literal,
    retyped,
    truth,
    wrong_count,
)
from noria.core.expressions.functions.logic import FLIPPED
from noria.core.expressions.functions.numbers import for_column, rounded
from noria.core.expressions.functions.trees import (
    at_time,
    canonical,
    conjunction,
    cut,
    fitted,
    now,
    rebuilt,
    undivided,
    uses_clock,
    with_arguments,
    with_each_argument,
    with_values,
    zero_divisors,
)

__all__ = [
    "CLOCK",
    "FALSE",
    "FLIPPED",
    "NEGATED",
    "NULL",
    "TRUE",
    "HexLiteral",
    "as_moment",
    "as_number",
    "at_time",
    "call",
    "canonical",
    "cast",
    "common_type",
    "comparable",
    "conjunction",
    "cut",
    "fitted",
    "for_column",
    "literal",
    "now",
    "rebuilt",
    "retyped",
    "rounded",
    "truth",
    "undivided",
    "uses_clock",
    "with_arguments",
    "with_each_argument",
    "with_values",
    "wrong_count",
    "zero_divisors",
]
