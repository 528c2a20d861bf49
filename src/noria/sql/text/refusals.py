"""What is not maintained, or not there at all: one way to say so, with what, where and what instead."""

from __future__ import annotations

from sqlglot import exp

from noria.core.errors import SqlError, not_supported
from noria.sql.text.syntax import place, snippet


class NotMaintained(SqlError):
    """The data-flow does not keep such a query up to date; Spark may still answer it once."""

    def __reduce__(self) -> tuple[type[SqlError], tuple[int, str, str]]:
        return SqlError, (self.code, self.state, self.message)


def refuse(what: str, node: exp.Expr, instead: str = "") -> SqlError:
    """The error for what is not there, neither maintained nor by Spark."""
    where = f"near '{snippet(node)}'{place(node)}"
    return not_supported(what, f"{instead}; {where}" if instead else where)


def not_maintained(what: str, node: exp.Expr, instead: str = "") -> NotMaintained:
    """The error for what only Spark answers."""
    e = refuse(what, node, instead)
    return NotMaintained(e.code, e.state, e.message)
