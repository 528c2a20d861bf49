"""The library: one entry for each SQL function whose result depends only on the values of its arguments.

`LIBRARY[op]` defines a call of that op.  Operators, comparisons, CASE and casts need more, and are in `functions`.
`sql/expressions/functions.py` maps the names of SQL functions to ops.
"""

from __future__ import annotations

from noria.core.expressions.library.chance import CHANCES
from noria.core.expressions.library.dates import DATES
from noria.core.expressions.library.declare import ArgumentType, Function
from noria.core.expressions.library.encodings import ENCODINGS
from noria.core.expressions.library.fulltext import FULLTEXT
from noria.core.expressions.library.json import JSONS
from noria.core.expressions.library.json_editing import JSON_EDITING
from noria.core.expressions.library.numbers import NUMBERS
from noria.core.expressions.library.text import TEXTS
from noria.core.expressions.library.zones import ZONES

LIBRARY: dict[str, Function] = {**NUMBERS, **TEXTS, **DATES, **JSONS, **JSON_EDITING, **ENCODINGS, **ZONES, **CHANCES,
                                **FULLTEXT}

__all__ = ["LIBRARY", "ArgumentType", "Function"]
