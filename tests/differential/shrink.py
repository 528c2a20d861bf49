"""A failing case made small: fewer statements, fewer rows, simpler queries, as long as it fails the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import sqlglot
from sqlglot import exp

Fails = Callable[[Sequence[str]], bool]
T = TypeVar("T")


def shrink(case: Sequence[str], fails: Fails, tries: int = 400) -> list[str]:
    """`fails`: does a case fail as the first did?  At most `tries` cases are tried."""
    left = [tries]

    def check(candidate: Sequence[str]) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        return fails(candidate)

    best = fewer(list(case), check)
    size = -1
    while size != sum(map(len, best)) and left[0] > 0:
        size = sum(map(len, best))
        for at in reversed(range(len(best))):
            best = _simpler(best, at, check)
        best = fewer(best, check)
    return best


def fewer(case: list[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Without runs of statements, long runs first."""
    size = max(len(case) // 2, 1)
    while True:
        at = len(case)
        while at > 0:
            start = max(at - size, 0)
            candidate = case[:start] + case[at:]
            if candidate and fails(candidate):
                case = candidate
            at = start
        if size == 1:
            return case
        size //= 2


def _simpler(case: list[str], at: int, fails: Fails) -> list[str]:
    """The case with one statement as simple as it gets: node by node, from the root."""
    number = 0
    while True:
        found = False
        for text in _variants(case[at], number):
            candidate = [*case[:at], text, *case[at + 1:]]
            if fails(candidate):
                case, found = candidate, True
                break
        if not found:
            number += 1
            if number >= _nodes(case[at]):
                return case


def _tree(text: str) -> exp.Expression | None:
    if text.startswith("--"):
        return None
    try:
        return sqlglot.parse_one(text, dialect="mysql")
    except sqlglot.errors.ParseError:
        return None


def _nodes(text: str) -> int:
    tree = _tree(text)
    return 0 if tree is None else sum(1 for _ in tree.walk())


def _variants(text: str, number: int) -> Iterator[str]:
    """Statements in which the node with this number is simpler or gone."""
    tree = _tree(text)
    if tree is None or number >= _nodes(text):
        return
    for change in _CHANGES:
        copy = tree.copy()
        if change(list(copy.walk())[number]):
            made = copy.sql(dialect="mysql")
            if len(made) < len(text):
                yield made


# ---------------------------------------------------------------- changes of one node, in place; True when done
def _drop_clause(node: exp.Expression) -> bool:
    if isinstance(node, exp.Where | exp.Having | exp.Order | exp.Limit | exp.Offset | exp.Distinct | exp.Group
                  | exp.OnConflict) and node.parent is not None:
        node.pop()
        return True
    return False


def _drop_listed(node: exp.Expression) -> bool:
    """One row, selected item, join or column definition of several."""
    parent = node.parent
    if parent is None or node.arg_key not in ("expressions", "joins") or isinstance(parent, exp.Func):
        return False
    if node.arg_key == "expressions" and len(parent.expressions) < 2:
        return False
    node.pop()
    return True


def _left(node: exp.Expression) -> bool:
    return _replaced(node, node.args.get("this")) if _inner(node) else False


def _right(node: exp.Expression) -> bool:
    return _replaced(node, node.args.get("expression")) if _inner(node) else False


def _first_of(node: exp.Expression) -> bool:
    return _replaced(node, next(iter(node.expressions), None)) if _inner(node) else False


def _constant(node: exp.Expression) -> bool:
    if isinstance(node, exp.Column | exp.Literal) or not _inner(node):
        return False
    return _replaced(node, exp.Literal.number(1))


def _inner(node: exp.Expression) -> bool:
    return isinstance(node, exp.Condition | exp.Paren) and node.parent is not None and not isinstance(
        node.parent, exp.Schema | exp.ColumnDef)


def _replaced(node: exp.Expression, by: object) -> bool:
    if not isinstance(by, exp.Expression):
        return False
    node.replace(by.copy())
    return True


_CHANGES = (_drop_clause, _drop_listed, _left, _right, _first_of, _constant)
