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

    def of_arguments(self) -> Operands:
        """What turns the arguments of an aggregate into expressions."""
        ...

    def of_function(self) -> Operands:
        """What turns the function of a window into an expression: its arguments may have aggregates."""
        ...
