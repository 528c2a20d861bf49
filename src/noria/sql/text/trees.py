"""Walks over syntax trees.  For a SELECT of one line, sqlglot's own walks cost as much as parsing it."""

from __future__ import annotations

from sqlglot import exp


def children(node: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    for value in node.args.values():
        if isinstance(value, exp.Expr):
            found.append(value)
        elif type(value) is list:
            found += [v for v in value if isinstance(v, exp.Expr)]
    return found


def levels_of(tree: exp.Expr) -> list[list[exp.Expr]]:
    """The nodes by depth.  Iterative, because the tree's depth is not checked yet."""
    found, level = list[list[exp.Expr]](), [tree]
    while level:
        found.append(level)
        level = [child for node in level for child in children(node)]
    return found


def nodes(tree: exp.Expr) -> list[exp.Expr]:
    """The node and all below it, level by level."""
    found = [tree]
    for node in found:  # the list grows meanwhile
        found += children(node)
    return found


def aggregates(select: exp.Expr) -> bool:
    """Whether the SELECT itself, not a subquery, has an aggregate in its select list, HAVING or ORDER BY."""
    parts = [*select.expressions, *(p for name in ("having", "order") if (p := select.args.get(name)) is not None)]
    return any(map(_aggregates, parts))


def _aggregates(node: exp.Expr) -> bool:
    if isinstance(node, exp.Query) or (isinstance(node, exp.Window) and isinstance(node.this, exp.AggFunc)):
        return isinstance(node, exp.Window) and any(map(_aggregates, children(node.this)))
    return isinstance(node, exp.AggFunc) or any(map(_aggregates, children(node)))


def has(tree: exp.Expr, *kinds: type[exp.Expr]) -> bool:
    """Whether the tree has a node of one of these kinds."""
    return any(isinstance(node, kinds) for node in nodes(tree))
