"""What turns the operands of a function into expressions (`scalars.Resolver`)."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from noria.core.expressions.expr import Expr


class Operands(Protocol):
    """Turns a tree node into an `Expr`.

    clause: the part of the statement, for errors; aggregates: whether aggregate functions are allowed.
    """

    @property
    def clause(self) -> str: ...

    @property
    def aggregates(self) -> bool: ...

    def __call__(self, node: exp.Expr) -> Expr: ...
