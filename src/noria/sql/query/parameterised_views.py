"""SELECTs from a view with parameters, which give each parameter a value by the name of its column.

    CREATE VIEW k AS SELECT COUNT(*) AS n FROM t WHERE g = ?
    SELECT n FROM k WHERE g = 7      →      SELECT COUNT(*) AS n FROM t WHERE g = 7

Keeps true: only views that cannot be a relation of FROM are read so: those that aggregate, or have a LIMIT, for each
value of their parameters.  The query that is planned instead finds the view's own reader.
"""

from __future__ import annotations

from sqlglot import exp

from noria.plan.view import ViewDef
from noria.sql.query.relations.context import Catalog
from noria.sql.query.relations.from_clause import can_be_named, unreadable
from noria.sql.text.syntax import parse_tokens, tokenize
from noria.sql.text.trees import nodes

_PARTS = ("expressions", "from_", "where", "kind")


def with_values(tree: exp.Expr, catalog: Catalog) -> tuple[exp.Expr, int | None]:
    """The view's query with the values that the SELECT gives its parameters, and how many of its columns are shown
    (None: all).  The tree itself if it is another SELECT."""
    view = _view_of(tree, catalog)
    if view is None:
        return tree, None
    values = _values(tree.args["where"].this, view, tree.args["from_"].this.alias_or_name)
    query = parse_tokens(tokenize(view.text), view.text).tree
    if values is None or not isinstance(query, exp.Select):
        return tree, None
    chosen = _chosen(tree.expressions, query, view, tree.args["from_"].this.alias_or_name)
    if chosen is None:
        return tree, None
    for node in [n for n in nodes(query) if isinstance(n, exp.Placeholder)]:
        node.replace(values[int(node.this)].copy())
    places, items = chosen
    query.set("expressions", items)
    return query, len(places) if places and len(places) < len(items) else None


def _view_of(tree: exp.Expr, catalog: Catalog) -> ViewDef | None:
    """The view with parameters that is the only relation of the SELECT, if it can be read in this way only."""
    if not isinstance(tree, exp.Select) or any(v for name, v in tree.args.items() if name not in _PARTS):
        return None
    source, where = tree.args.get("from_"), tree.args.get("where")
    table = source.this if source is not None and where is not None else None
    if not isinstance(table, exp.Table) or any(v for name, v in table.args.items() if name not in ("this", "alias")):
        return None
    view = catalog.view(table.name) if catalog.table(table.name) is None else None
    fits = view is not None and view.key and view.asks is None and unreadable(view) is not None
    return view if fits else None


def _values(where: exp.Expr, view: ViewDef, alias: str) -> list[exp.Expr] | None:
    """The value of each parameter, in order; None if the conditions are others."""
    terms = list(where.flatten()) if isinstance(where, exp.And) else [where]
    found: dict[str, exp.Expr] = {}
    for term in terms:
        if not isinstance(term, exp.EQ):
            return None
        column, value = (term.this, term.expression) if isinstance(term.this, exp.Column) else (
            term.expression, term.this)
        if not isinstance(column, exp.Column) or column.table.lower() not in ("", alias.lower()) or any(
                isinstance(n, exp.Column | exp.Query) for n in nodes(value)):
            return None
        found[column.name.lower()] = value
    names = [view.plan.fields[k].name.lower() for k in view.key]
    if len(found) != len(terms) or {*names} != {*found} or not all(
            k < view.visible or can_be_named(view, k) for k in view.key):
        return None
    return [found[name] for name in names]


def _chosen(items: list[exp.Expr], query: exp.Select, view: ViewDef, alias: str
            ) -> tuple[list[int], list[exp.Expr]] | None:
    """The places of the view's columns that the SELECT names, and the items to plan; None if it computes something
    else.  If the view's first columns are named, all are planned, as in the view's own reader."""
    if len(items) == 1 and isinstance(items[0], exp.Star):
        return [], list(query.expressions)
    if len(query.expressions) != view.visible or any(n.is_star for n in query.expressions):
        return None
    places = {f.name.lower(): n for n, f in enumerate(view.fields)}
    chosen: list[exp.Expr] = []
    named: list[int] = []
    for item in items:
        column, name = item.unalias(), item.alias_or_name
        if not isinstance(column, exp.Column) or column.table.lower() not in ("", alias.lower()):
            return None
        at = places.get(column.name.lower())
        if at is None:
            return None
        inner = query.expressions[at].unalias().copy()
        chosen.append(exp.Alias(this=inner, alias=exp.to_identifier(name, quoted=True)))
        named.append(at)
    if named == list(range(len(named))):
        chosen += query.expressions[len(named):]
    return named, chosen
