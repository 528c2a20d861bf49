"""Makes the errors for unsupported features.  Each says what is unsupported, where, and what to write instead."""

from __future__ import annotations

from sqlglot import exp

from noria.core.errors import SqlError, not_supported
from noria.sql.text.syntax import place, snippet


class NotMaintained(SqlError):
    """The data-flow cannot maintain the query; Spark may still answer it once."""


def refuse(what: str, node: exp.Expr, instead: str = "") -> SqlError:
    """The error for a feature that neither the data-flow nor Spark supports."""
    where = f"near '{snippet(node)}'{place(node)}"
    return not_supported(what, f"{instead}; {where}" if instead else where)


def not_maintained(what: str, node: exp.Expr, instead: str = "") -> NotMaintained:
    """The error for a feature that only Spark supports."""
    e = refuse(what, node, instead)
    return NotMaintained(e.code, e.state, e.message)
