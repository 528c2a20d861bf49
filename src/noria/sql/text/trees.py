"""Looking through syntax trees: sqlglot's own walks cost, for a SELECT of one line, as much as parsing it."""

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
    """The nodes by their depth; iterative, as all that looks at a tree before its depth is known."""
    found, level = list[list[exp.Expr]](), [tree]
    while level:
        found.append(level)
        level = [child for node in level for child in children(node)]
    return found


def nodes(tree: exp.Expr) -> list[exp.Expr]:
    """The node and all below it, level by level."""
    found = [tree]
    for node in found:  # which grows
        found += children(node)
    return found


def has(tree: exp.Expr, *kinds: type[exp.Expr]) -> bool:
    """Is it, or is anything below it, of one of these kinds?"""
    return any(isinstance(node, kinds) for node in nodes(tree))
