"""The library: every function of SQL that is a plain function of its values, one entry each.

`LIBRARY[op]` is what a call of that op means; operators, comparisons, CASE and casts, which need more than that,
are in `functions`.  `sql/expressions/functions.py` says under which names a client finds them.
"""

from __future__ import annotations

from noria.core.expressions.library.dates import DATES
from noria.core.expressions.library.declare import Function, Want
from noria.core.expressions.library.json import JSONS
from noria.core.expressions.library.numbers import NUMBERS
from noria.core.expressions.library.text import TEXTS

LIBRARY: dict[str, Function] = {**NUMBERS, **TEXTS, **DATES, **JSONS}

__all__ = ["LIBRARY", "Function", "Want"]
