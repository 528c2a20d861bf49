"""The context in which a query is planned: its mode (maintained or answered once), the catalog and parameter values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from sqlglot import exp

from noria.core.expressions.expr import Expr
from noria.core.expressions.functions import NULL, literal
from noria.core.types import TableDef
from noria.plan.constant_row import GivenRows
from noria.plan.mir import Mir
from noria.plan.view import ViewDef
from noria.sql.query.relations.planned import PlannedQuery
from noria.sql.query.relations.scope import Scope
from noria.sql.text.refusals import not_maintained


class SubqueryPlanner(Protocol):
    """Plans a query within a query.  `top`: its parameters may become keys, in an ad-hoc context its literals too.
    `outer`: the names of the outer query, for a subquery in an expression."""

    def __call__(self, context: Context, tree: exp.Expr, top: bool = False,
                 outer: Scope | None = None) -> PlannedQuery: ...


class Catalog(Protocol):
    """The tables and views that a text may name; case does not matter."""

    def table(self, name: str) -> TableDef | None: ...

    def view(self, name: str) -> ViewDef | None: ...


class Recorder:
    """A catalog that records the folded names of the views that a text reads."""

    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self.views: set[str] = set()

    def table(self, name: str) -> TableDef | None:
        return self._catalog.table(name)

    def view(self, name: str) -> ViewDef | None:
        found = self._catalog.view(name)
        if found is not None:
            self.views.add(found.name.lower())
        return found


class GivenCatalog:
    """A catalog beside which a statement has rows of its own under some names (`constant_row.GivenRows`)."""

    def __init__(self, catalog: Catalog, given: Mapping[str, GivenRows]):
        self._catalog, self._given = catalog, given

    def given(self, name: str) -> GivenRows | None:
        found = self._given.get(name.lower())
        return self._catalog.given(name) if found is None and isinstance(self._catalog, GivenCatalog) else found

    def table(self, name: str) -> TableDef | None:
        return None if name.lower() in self._given else self._catalog.table(name)

    def view(self, name: str) -> ViewDef | None:
        return None if name.lower() in self._given else self._catalog.view(name)


@dataclass(frozen=True)
class Context:
    """The context of one planning.

    `mode` "view": CREATE VIEW, in which literals stay filters.  "adhoc": a SELECT that becomes a view, so that
    `column = literal` becomes part of its key.  "batch": a SELECT that Spark runs.
    `values`: the parameters' values, if they are known; constants for parameters that no lookup can use.
    `named`: the plans of WITH.  `constant`: literal ranges of an ad-hoc SELECT stay conditions.
    `any_of_group`: without ONLY_FULL_GROUP_BY, a column that is not grouped has some value of its group.
    """

    catalog: Catalog
    planner: SubqueryPlanner
    mode: Literal["view", "adhoc", "batch"]
    values: Sequence[Any] | None = None
    named: dict[str, Mir] = field(default_factory=dict)
    constant: bool = False
    any_of_group: bool = False

    def query(self, tree: exp.Expr, top: bool = False, outer: Scope | None = None) -> PlannedQuery:
        return self.planner(self, tree, top, outer)

    def inner(self) -> Context:
        """The context of a query within the query, where literals are not keys."""
        return replace(self, mode="view") if self.mode == "adhoc" else self

    @property
    def batch(self) -> bool:
        return self.mode == "batch"

    def parameter(self, node: exp.Placeholder) -> Expr:
        """The value of a `?` that is not a key.  Without values: NULL in a batch, else raises NotMaintained."""
        if not self.batch and self.values is None:
            parent = node.parent if node.parent is not None else node
            raise not_maintained("a parameter here", parent,
                                 "`column = ?` between the terms of WHERE makes a column the view's key")
        return NULL if self.values is None else literal(self.values[int(node.this)])

    def only_batch(self, what: str, node: exp.Expr, instead: str = "") -> None:
        """Raise NotMaintained for a feature that only Spark's queries have."""
        if not self.batch:
            raise not_maintained(what, node, instead)
