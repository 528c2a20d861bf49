"""The tokens of one statement, read from left to right, as the readers of statements without sqlglot's parser use them.

`statements/session.py` implements it.
"""

from __future__ import annotations

from typing import Protocol

from sqlglot.tokenizer_core import Token

from noria.sql.text.databases import Names


class Words(Protocol):
    names: Names
    text: str
    tokens: list[Token]

    @property
    def word(self) -> str:
        """The next word in upper case; "" at the end and for strings and quoted names."""

    def peek(self) -> Token | None: ...
    def next(self) -> Token: ...
    def take(self, *words: str) -> bool:
        """Skip these words if they come next; return whether they did."""

    def name(self) -> str: ...
    def dotted(self) -> str:
        """Read a table's name, or database.name.  Returns the catalog's name."""

    def word_before(self) -> str: ...
    def string(self) -> str: ...
    def number(self) -> int: ...
    def near(self) -> str: ...
    def near_all(self) -> str: ...
    def end(self) -> None: ...
