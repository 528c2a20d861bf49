"""What planning a query needs to know, and the one decision it has: to maintain, or to answer once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from sqlglot import exp

from noria.core.expressions.expr import Expr
from noria.core.expressions.functions import NULL, literal
from noria.core.types import TableDef
from noria.plan.mir import Mir
from noria.plan.view import ViewDef
from noria.sql.query.planned import Query
from noria.sql.query.scope import Scope
from noria.sql.text.refusals import not_maintained


class Planner(Protocol):
    """Plans a query within a query.  top: its keys may be parameters of the whole, and literals when the context is ad
    hoc; outer: the names of the query in whose expressions it stands."""

    def __call__(self, context: Context, tree: exp.Expr, top: bool = False, outer: Scope | None = None) -> Query: ...


class Catalog(Protocol):
    """The tables and views a text may name; names ignore case."""

    def table(self, name: str) -> TableDef | None: ...

    def view(self, name: str) -> ViewDef | None: ...


@dataclass(frozen=True)
class Context:
    """mode "view": CREATE VIEW, literals stay filters; "adhoc": a SELECT that becomes a view, `column = literal`
    becomes part of its key; "batch": a SELECT that Spark runs.  values: of the parameters.  Without them, a parameter
    is NULL in a batch and refused elsewhere unless it is a key.  named: the queries of WITH.  constant: literal ranges
    of an ad-hoc SELECT stay conditions."""

    catalog: Catalog
    planner: Planner
    mode: Literal["view", "adhoc", "batch"]
    values: Sequence[Any] | None = None
    named: dict[str, Mir] = field(default_factory=dict)
    constant: bool = False

    def query(self, tree: exp.Expr, top: bool = False, outer: Scope | None = None) -> Query:
        return self.planner(self, tree, top, outer)

    def inner(self) -> Context:
        """For a query within the query."""
        return replace(self, mode="view") if self.mode == "adhoc" else self

    @property
    def batch(self) -> bool:
        return self.mode == "batch"

    def parameter(self, node: exp.Placeholder) -> Expr:
        """A `?` that is not compared with a column as a key."""
        if not self.batch and self.values is None:
            parent = node.parent if node.parent is not None else node
            raise not_maintained("a parameter here", parent,
                                 "`column = ?` between the terms of WHERE makes a column the view's key")
        return NULL if self.values is None else literal(self.values[int(node.this)])

    def only_batch(self, what: str, node: exp.Expr, instead: str = "") -> None:
        """Refuse what the data-flow does not maintain."""
        if not self.batch:
            raise not_maintained(what, node, instead)
