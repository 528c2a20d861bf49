"""How a function of the library is declared: its name, what it takes, what it gives, and how it is worked out.

    "lpad": Function((TEXT, INT, TEXT), text, values=lpad)          once per distinct row of arguments, in Python
    "sqrt": Function((DOUBLE,), DOUBLE, codes=np.sqrt)              once per batch, over arrays

That one entry is all there is to a function: `functions` casts the arguments to what it takes and types the
call, `evaluate` runs it, Spark runs the same code where it has no equal of its own (`spark/lowering/expressions.py`).

* `values` gets Python values and gives one, None for NULL; an exception makes the row an error.  A `codes` function
  gets and gives arrays: float64 where it says DOUBLE (NaN is NULL, infinity an error), else codes; it need not look at
  NULL and errors, whose rows are masked afterwards.
* A NULL argument gives NULL and `values` never sees it, unless the function `sees_null`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from noria.core.types import BYTES, TEXT, TEXT_BIN, SqlType


class Want(Enum):
    """What a function wants of an argument; whatever else is given is cast."""

    ANY = "any"
    TEXT = "text"  # characters: bytes are read as UTF-8
    BYTES = "bytes"  # bytes: characters as UTF-8
    STRING = "string"  # text or bytes as they are
    INT = "int"
    NUMBER = "number"  # of any kind
    DOUBLE = "double"
    DATE = "date"
    MOMENT = "moment"  # a DATE or DATETIME as it is
    TIME = "time"
    JSON = "json"  # a document: text is parsed
    MEMBER = "member"  # a value to be put into a document: text is a string of it


Types = tuple[SqlType, ...]


@dataclass(frozen=True)
class Function:
    """takes: a want per argument; `more` lets the last one repeat, `least` leaves later ones out.
    nullable: it can be NULL where no argument is.  internal: no text says its name; functions of SQL are made with
    it."""

    takes: tuple[Want, ...]
    gives: SqlType | Callable[[Types], SqlType]
    values: Callable[..., Any] | None = None
    codes: Callable[..., Any] | None = None
    least: int | None = None
    more: bool = False
    nullable: bool = False
    sees_null: bool = False
    internal: bool = False

    @property
    def fewest(self) -> int:
        return len(self.takes) if self.least is None else self.least

    def want(self, position: int) -> Want:
        return self.takes[min(position, len(self.takes) - 1)]

    def type(self, arguments: Types) -> SqlType:
        return self.gives if isinstance(self.gives, SqlType) else self.gives(arguments)


def text_of(arguments: Types) -> SqlType:
    """Text as exact as its most exact argument; bytes if one is bytes."""
    texts = [t for t in arguments if t.is_text]
    if any(t.is_bytes for t in texts):
        return BYTES
    return TEXT_BIN if any(not t.folds and not t.is_json for t in texts) else TEXT
