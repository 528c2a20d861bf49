"""WITH RECURSIVE: reads the recursive queries of the clause, and what is planned once their rows are known.

    WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 5) SELECT n FROM c
        first      SELECT 1
        further    SELECT n + 1 FROM c WHERE n < 5       again and again; c: the rows of the iteration before
        rest       SELECT n FROM c                       c: all rows

The session runs them (`server/sessions/reads/recursion.py`).  Each is planned as any other SELECT, beside rows of its
own (`GivenCatalog`).  Parameters become literals before.

Keeps true: a part that is not recursive comes first, and a recursive one names its query once, as in MySQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import (
    CTE_RECURSIVE_FORBIDS_AGGREGATION,
    CTE_RECURSIVE_REQUIRES_NONRECURSIVE_FIRST,
    CTE_RECURSIVE_REQUIRES_SINGLE_REFERENCE,
    CTE_RECURSIVE_REQUIRES_UNION,
)
from noria.sql.commands import Command, Given, Recursive, RecursivePart
from noria.sql.expressions.clock import literal_of
from noria.sql.text.refusals import refuse
from noria.sql.text.trees import aggregates, nodes

PlanTree = Callable[[exp.Expr, Given], Command]
_ENDS = ("order", "limit", "offset")


def clause_of(tree: exp.Expr) -> exp.With | None:
    """The WITH of the statement that has recursive queries; None if it has none."""
    owner = _owner(tree)
    found = owner.args.get("with_")
    if found is None or not found.args.get("recursive"):
        return None
    return found if any(_names_itself(cte) for cte in found.expressions) else None


def without_word(tree: exp.Expr) -> None:
    """Remove RECURSIVE where no query of WITH names itself."""
    for clause in [n for n in nodes(tree) if isinstance(n, exp.With) and n.args.get("recursive")]:
        if not any(map(_names_itself, clause.expressions)):
            clause.set("recursive", None)


def _owner(tree: exp.Expr) -> exp.Expr:
    """The node that has the statement's WITH."""
    inner = tree.expression if isinstance(tree, exp.Insert) and isinstance(tree.expression, exp.Query) else None
    return inner if inner is not None and tree.args.get("with_") is None else tree


def recursive(tree: exp.Expr, values: Sequence[Any], plan: PlanTree) -> Recursive:
    """Read the statement.  values: of its parameters.  plan: plans a tree without parameters beside given rows."""
    tree = _with_values(tree, values)
    clause = _owner(tree).args["with_"]
    plain: list[exp.Expr] = []
    parts: list[RecursivePart] = []
    for cte in clause.expressions:
        if _names_itself(cte):
            parts.append(_part(cte, list(plain), plan))
        else:
            plain.append(cte)
    rest = tree.copy()
    _with(_owner(rest), plain)
    return Recursive(tuple(parts), lambda given: plan(rest.copy(), given))


def _part(cte: exp.Expr, plain: list[exp.Expr], plan: PlanTree) -> RecursivePart:
    name, query = cte.alias, cte.this
    if not isinstance(query, exp.Union):
        raise SqlError(*CTE_RECURSIVE_REQUIRES_UNION,
                       f"Recursive Common Table Expression '{name}' should contain a UNION")
    arms, distinct = _arms(query)
    own = [_references(arm, name) for arm in arms]
    start = next(i for i, n in enumerate(own) if n)
    if not start or not all(own[start:]):
        raise SqlError(*CTE_RECURSIVE_REQUIRES_NONRECURSIVE_FIRST,
                       f"Recursive Common Table Expression '{name}' should have one or more non-recursive query blocks "
                       "followed by one or more recursive ones")
    for arm in arms[start:]:
        _check(arm, name)

    def planned(trees: list[exp.Expr], given: Given) -> tuple[Command, ...]:
        out = []
        for arm in trees:
            alone = arm.copy()
            _with(alone, plain)
            out.append(plan(alone, given))
        return tuple(out)

    columns = tuple(c.name for c in cte.args["alias"].args.get("columns") or [])
    return RecursivePart(name.lower(), columns, distinct, lambda given: planned(arms[:start], given),
                         lambda given: planned(arms[start:], given))


def _arms(query: exp.Expr) -> tuple[list[exp.Expr], bool]:
    """The SELECTs of a UNION in order, and whether it is DISTINCT."""
    if isinstance(query, exp.Subquery) and not query.alias:
        return _arms(query.this)
    if not isinstance(query, exp.SetOperation):
        return [query], False
    if not isinstance(query, exp.Union):
        raise refuse("INTERSECT or EXCEPT in a recursive query of WITH", query, "use UNION")
    if any(query.args.get(name) for name in _ENDS):
        raise refuse("ORDER BY or LIMIT in a recursive query of WITH", query, "write it in the SELECT after WITH")
    left, right = _arms(query.this), _arms(query.expression)
    distinct = bool(query.args.get("distinct"))
    if any(len(arms) > 1 and inner != distinct for arms, inner in (left, right)):
        raise refuse("UNION ALL beside UNION DISTINCT in a recursive query of WITH", query, "use one of them")
    return left[0] + right[0], distinct


def _references(tree: exp.Expr, name: str) -> int:
    return sum(isinstance(n, exp.Table) and not n.args.get("db") and n.name.lower() == name.lower()
               for n in nodes(tree))


def _names_itself(cte: exp.Expr) -> bool:
    return _references(cte.this, cte.alias) > 0


def _check(arm: exp.Expr, name: str) -> None:
    """Check a recursive SELECT."""
    direct = [arm.args.get("from_"), *(arm.args.get("joins") or [])]
    outer = any(j.args.get("side") for j in arm.args.get("joins") or [])
    tables = [s for s in direct if s is not None and isinstance(s.this, exp.Table)]
    here = [s for s in tables if s.this.name.lower() == name.lower()]
    if _references(arm, name) != 1 or len(here) != 1 or (outer and here[0] is not direct[0]):
        raise SqlError(*CTE_RECURSIVE_REQUIRES_SINGLE_REFERENCE,
                       f"In recursive query block of Recursive Common Table Expression '{name}', the recursive table "
                       "must be referenced only once, and not in any subquery")
    assert isinstance(arm, exp.Select)
    windows = any(isinstance(n, exp.Window) for n in nodes(arm))
    if arm.args.get("group") or windows or aggregates(arm):
        raise SqlError(*CTE_RECURSIVE_FORBIDS_AGGREGATION,
                       f"Recursive Common Table Expression '{name}' can contain neither aggregation nor window "
                       "functions in recursive query block")
    if any(arm.args.get(end) for end in _ENDS):
        raise refuse("ORDER BY or LIMIT in a recursive query of WITH", arm, "write it in the SELECT after WITH")


def _with(tree: exp.Expr, plain: list[exp.Expr]) -> None:
    """Let the tree have these queries of WITH."""
    own = tree.args.get("with_")
    kept = [] if own is None or own.args.get("recursive") else list(own.expressions)
    every = [*(p.copy() for p in plain), *kept]
    tree.set("with_", exp.With(expressions=every) if every else None)


def _with_values(tree: exp.Expr, values: Sequence[Any]) -> exp.Expr:
    """The tree with literals in place of its parameters."""
    tree = tree.copy()
    for node in [n for n in nodes(tree) if isinstance(n, exp.Placeholder)]:
        made = literal_of(values[int(node.this)])
        made.meta.update(node.meta)
        node.replace(made)
    return tree


__all__ = ["clause_of", "recursive", "without_word"]
