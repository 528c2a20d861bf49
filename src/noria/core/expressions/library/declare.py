"""Declares functions of the library: name, argument types, result type, and code.

    "lpad": Function((TEXT, INT, TEXT), text, values=lpad)          once per distinct row of arguments, in Python
    "sqrt": Function((DOUBLE,), DOUBLE, codes=np.sqrt)              once per batch, over arrays

That one entry is the complete function.  `functions` casts the arguments to the declared types and types the call, and
`evaluate` runs it.  Spark runs the same code if it has no equivalent of its own (`spark/lowering/expressions.py`).

* A `values` function receives Python values and returns one, None for NULL; an exception makes the row an error.
* A `codes` function receives and returns arrays: float64 for DOUBLE (NaN is NULL, infinity an error), else codes.  It
  may ignore NULL and errors, whose rows are masked afterwards.
* A NULL argument yields NULL and `values` never receives it, unless the function `sees_null`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from noria.core.types import BYTES, TEXT, TEXT_BIN, SqlType


class ArgumentType(Enum):
    """The type that a function expects of an argument.  Other arguments are cast to it."""

    ANY = "any"
    TEXT = "text"  # characters: bytes are read as UTF-8
    BYTES = "bytes"  # bytes: characters as UTF-8
    STRING = "string"  # text or bytes, unchanged
    INT = "int"
    NUMBER = "number"  # of any kind
    DOUBLE = "double"
    DATE = "date"
    MOMENT = "moment"  # a DATE or DATETIME, unchanged
    TIME = "time"
    JSON = "json"  # a document: text is parsed
    MEMBER = "member"  # a value for a document: text becomes a JSON string


Types = tuple[SqlType, ...]


@dataclass(frozen=True)
class Function:
    """One function of the library.

    `takes`: a `ArgumentType` for each argument.  `returns`: the result type, or a function of the argument types.
    `least`: the least number of arguments, if some are optional.  `more`: the last argument may repeat.
    `nullable`: the result can be NULL although no argument is.  `internal`: SQL has no function of this name; the
    planner uses it for other functions and operators.  `of_zero`: the result's code for the zero date as a date or
    moment, None for NULL.  `sees_zero`: `values` receives the zero date.

    `screen`: says of many rows at once which may have another result than zero; `values` is not called for the others.
    It receives the first two arguments, which are constants, and a function that returns the last arguments as arrays
    of texts, folded if its own argument is True.
    """

    takes: tuple[ArgumentType, ...]
    returns: SqlType | Callable[[Types], SqlType]
    values: Callable[..., Any] | None = None
    codes: Callable[..., Any] | None = None
    least: int | None = None
    more: bool = False
    nullable: bool = False
    sees_null: bool = False
    internal: bool = False
    of_zero: int | None = None
    sees_zero: bool = False
    screen: Callable[[Any, Any, Callable[[bool], list[pa.Array]]], pa.Array] | None = None

    @property
    def fewest(self) -> int:
        return len(self.takes) if self.least is None else self.least

    def want(self, position: int) -> ArgumentType:
        return self.takes[min(position, len(self.takes) - 1)]

    def type(self, arguments: Types) -> SqlType:
        return self.returns if isinstance(self.returns, SqlType) else self.returns(arguments)


def text_of(arguments: Types) -> SqlType:
    """Return the type of a text made of arguments: bytes if one is bytes, otherwise BIN if one is BIN, otherwise CI."""
    texts = [t for t in arguments if t.is_text]
    if any(t.is_bytes for t in texts):
        return BYTES
    return TEXT_BIN if any(not t.folds and not t.is_json for t in texts) else TEXT
