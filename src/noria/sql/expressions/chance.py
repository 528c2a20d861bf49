"""RAND() and UUID() for each row: they become functions of the row and of a seed before planning.

    SELECT id FROM t ORDER BY RAND() LIMIT 3    →    … ORDER BY `rand of row`(seed) LIMIT 3
    UPDATE t SET token = UUID()                 →    … SET token = `uuid of row`(seed)

`Resolver` adds the columns that tell the row from others: the primary keys of the tables of FROM, or the groups.  The
session draws a seed for each call in each execution, so two calls in one row differ.  `RAND(5)` has the seed 5.

Keeps true: a SELECT with such a call is answered once; no view is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from noria.sql.text.trees import nodes

OPS = {"RAND OF ROW": "rand_of_row", "UUID OF ROW": "uuid_of_row"}
"""The names of the replaced calls, and the library's functions.  No statement can name them."""
_CALLS: dict[type[exp.Expr], str] = {exp.Rand: "RAND OF ROW", exp.Uuid: "UUID OF ROW"}
_SEEDS = 1 << 53


def reads_chance(found: Iterable[exp.Expr]) -> bool:
    """Whether one of the nodes is a call of chance for each row of a query, an UPDATE or a DELETE."""
    return any(type(n) in _CALLS and _has_rows(n) for n in found)


def _has_rows(node: exp.Expr) -> bool:
    above = node.parent
    while above is not None and not isinstance(above, exp.Select | exp.Insert):
        if isinstance(above, exp.Update | exp.Delete):
            return True
        above = above.parent
    return isinstance(above, exp.Select) and above.args.get("from_") is not None


def seeded(tree: exp.Expr, draw: Callable[[], float]) -> exp.Expr:
    """Replace the calls in the tree, in place.  draw: a random number from 0 to 1."""
    for node in [n for n in nodes(tree) if type(n) in _CALLS and _has_rows(n)]:
        seed = node.args.get("this") if isinstance(node, exp.Rand) else None
        if seed is not None and not _is_constant(seed):
            continue  # RAND(column) is a function of the column
        drawn = seed or exp.Literal.number(int(draw() * _SEEDS))
        made = exp.Anonymous(this=_CALLS[type(node)], expressions=[drawn])
        made.meta.update(node.meta)
        node.replace(made)
    return tree


def _is_constant(node: exp.Expr) -> bool:
    inner = node.this if isinstance(node, exp.Neg) else node
    return isinstance(inner, exp.Literal | exp.Null)


__all__ = ["OPS", "reads_chance", "seeded"]
