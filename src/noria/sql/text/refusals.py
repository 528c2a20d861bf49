"""Makes the errors for unsupported features.  Each says what is unsupported, where, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from noria.core.errors import SqlError, not_supported
from noria.sql.text.syntax import place, snippet


class NotMaintained(SqlError):
    """The data-flow cannot maintain the query; Spark may still answer it once."""


class NotMerged(NotMaintained):
    """A group is not complete in the rows of one lookup.  It is, if no literal or parameter is a key."""


def refuse(what: str, node: exp.Expr, instead: str = "") -> SqlError:
    """The error for a feature that neither the data-flow nor Spark supports."""
    where = f"near '{snippet(node)}'{place(node)}"
    return not_supported(what, f"{instead}; {where}" if instead else where)


def not_maintained(what: str, node: exp.Expr, instead: str = "") -> NotMaintained:
    """The error for a feature that only Spark supports."""
    e = refuse(what, node, instead)
    return NotMaintained(e.code, e.state, e.message)


def not_merged(what: str, node: exp.Expr, instead: str = "") -> NotMerged:
    """The error for a query whose groups cannot be completed after a lookup."""
    e = refuse(what, node, instead)
    return NotMerged(e.code, e.state, e.message)


_PROGRAMS = {"TRIGGER": "write what it would in the application's statements",
             "PROCEDURE": "send its statements", "FUNCTION": "compute it in the application or in a view",
             "EVENT": "run the statement from a scheduler such as cron"}
_OTHER_KINDS = ("TABLE", "VIEW", "FEED", "INDEX", "DATABASE", "SCHEMA", "(")
_BEFORE_KIND = 12  # tokens: OR REPLACE, AGGREGATE, DEFINER = 'name' @ 'host'


def refuse_program(tokens: Sequence[Token]) -> None:
    """Raise the error for a CREATE of a trigger, procedure, function or event, whatever follows."""
    for before, token in pairwise(tokens[:_BEFORE_KIND]):
        word = "" if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) else token.text.upper()
        if word in _OTHER_KINDS:
            return
        if word in _PROGRAMS and before.text not in ("=", "@"):
            raise not_supported(f"CREATE {word}", _PROGRAMS[word])


def names_no_program(words: Sequence[str]) -> bool:
    """Whether these words begin a DROP … IF EXISTS of a kind of which there is none."""
    return "".join(words[:1]) in ("TRIGGER", "PROCEDURE", "FUNCTION", "EVENT") and list(words[1:]) == ["IF", "EXISTS"]
