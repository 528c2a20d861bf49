"""The data of one query block while it is planned; `select` fills it clause by clause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import exp

from noria.core.expressions.expr import Expr
from noria.plan.lookups import Key
from noria.sql.query.relations.context import Context
from noria.sql.query.relations.joins import JoinedPlan
from noria.sql.query.relations.planned import Correlation
from noria.sql.query.relations.scope import Scope


class Relations(Protocol):
    """The relations to which subqueries are joined."""

    def join(self, unit: JoinedPlan, left: bool, on: list[Expr]) -> None: ...


@dataclass(frozen=True)
class SelectItem:
    """One column of the select list."""

    name: str
    expr: Expr


@dataclass
class Block:
    """A SELECT with its names resolved.

    `after`, `after_having`: conditions with parameters that are not keys; they apply after the lookup.  `literals`:
    the literals that became parameters.  For a subquery, `outer` has the names of the outer query.  `correlations`
    are its columns that are compared with outer ones.  `outer_terms` are terms over outer columns alone.  `above`:
    subqueries that are joined above the grouping, with their terms.
    """

    context: Context
    tree: exp.Select
    scope: Scope
    relations: Relations
    outer: Scope | None = None
    outer_terms: list[Expr] = field(default_factory=list)
    subqueries: dict[tuple[str, str], Expr] = field(default_factory=dict)
    items: list[SelectItem] = field(default_factory=list)
    where: list[Expr] = field(default_factory=list)
    keys: list[Key[Expr]] = field(default_factory=list)
    correlations: list[Correlation[Expr]] = field(default_factory=list)
    groups: list[Expr] = field(default_factory=list)
    having: list[Expr] = field(default_factory=list)
    order: list[tuple[Expr, bool]] = field(default_factory=list)
    after: list[Expr] = field(default_factory=list)
    after_having: list[Expr] = field(default_factory=list)
    literals: list[Any] = field(default_factory=list)
    above: list[tuple[JoinedPlan, list[Expr]]] = field(default_factory=list)

    @property
    def bound(self) -> list[Key[Expr] | Correlation[Expr]]:
        """All columns for which a lookup supplies values.  Sorted, so that hidden columns have one order however WHERE
        is written."""
        return sorted([*self.keys, *self.correlations], key=lambda b: str(b.column))

    def column(self, name: str, table: str, clause: str) -> Expr:
        """Resolve a name in the block, else among the columns lent to it, else in the outer query."""
        if self.outer is None or self.scope.find(name, table):
            return self.scope.resolve(name, table, clause)
        key = table.lower(), name.lower()
        if (own := self.scope.lent.get(key)) is not None:
            return own
        if (of_outer := self.outer.lent.get(key)) is not None and not self.outer.find(name, table):
            return of_outer
        return self.outer.resolve(name, table, clause)

    def alias(self, name: str) -> Expr | None:
        return next((i.expr for i in self.items if i.name.lower() == name.lower()), None)
