"""A query block while it is planned: a SELECT with its names resolved, clause after clause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from noria.core.expressions.expr import Expr
from noria.plan.lookups import Key
from noria.sql.query.context import Context
from noria.sql.query.joins import Relations
from noria.sql.query.planned import Correlation
from noria.sql.query.scope import Scope


@dataclass(frozen=True)
class Item:
    """One column of the select list."""

    name: str
    expr: Expr


@dataclass
class Block:
    """A SELECT with its names resolved.  after, after_having: conditions that have parameters and are no keys.
    literals: values of parameters that were literals.  outer: the names of the query in whose expressions it stands,
    correlations: what is compared with these, given: terms over these alone."""

    context: Context
    tree: exp.Select
    scope: Scope
    relations: Relations
    outer: Scope | None = None
    given: list[Expr] = field(default_factory=list)
    subqueries: dict[tuple[str, str], Expr] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    where: list[Expr] = field(default_factory=list)
    keys: list[Key[Expr]] = field(default_factory=list)
    correlations: list[Correlation[Expr]] = field(default_factory=list)
    groups: list[Expr] = field(default_factory=list)
    having: list[Expr] = field(default_factory=list)
    order: list[tuple[Expr, bool]] = field(default_factory=list)
    after: list[Expr] = field(default_factory=list)
    after_having: list[Expr] = field(default_factory=list)
    literals: list[Any] = field(default_factory=list)

    @property
    def bound(self) -> list[Key[Expr] | Correlation[Expr]]:
        """All that one lookup gives a value, or several, of; hidden columns stand in one order, however WHERE was
        written."""
        return sorted([*self.keys, *self.correlations], key=lambda b: str(b.column))

    def column(self, name: str, table: str, clause: str) -> Expr:
        """The column that a name means; of the block, else of the outer query."""
        inside = self.outer is None or self.scope.find(name, table)
        scope = self.scope if inside or self.outer is None else self.outer
        return scope.resolve(name, table, clause)

    def alias(self, name: str) -> Expr | None:
        return next((i.expr for i in self.items if i.name.lower() == name.lower()), None)
