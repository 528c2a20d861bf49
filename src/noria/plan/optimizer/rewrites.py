"""The passes from MIR to MIR: functions in one ordered tuple, each with its before and after (§5.1).  Call `optimize`.

Keeps true: a rewritten plan has the same rows, in the same columns with the same names.  No filter moves below an
Aggregate, a DISTINCT or the NULL-extended side of a LEFT JOIN.  Below a top-k, a window or GROUP_CONCAT, only filters
over its group move.  Equal nodes share state, so passes change mostly nodes without state: filters and projections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from noria.core.expressions.expr import Call, Col, Const, Expr, columns_of, composed, conjuncts, substitute
from noria.core.expressions.functions import conjunction, rebuilt
from noria.core.limits import TOP_ROWS
from noria.plan.columns import cols_of
from noria.plan.mir import (
    Aggregate,
    Filter,
    GroupConcat,
    Join,
    Mir,
    Project,
    Repeat,
    TopK,
    UnionAll,
    Window,
)

ROUNDS = 20  # each round makes a plan smaller or its filters lower; deeper plans than this do not occur


def optimize(plan: Mir) -> Mir:
    """Run all passes until none changes the plan."""
    names = tuple(f.name for f in plan.fields)
    for _ in range(ROUNDS):
        before = plan
        for rewrite in PASSES:
            plan = rewrite(plan)
        if plan == before:
            break
    if tuple(f.name for f in plan.fields) != names:
        plan = Project(plan, cols_of(plan), names)
    return plan


# ------------------------------------------------------------------ passes
def merge_filters(plan: Mir) -> Mir:
    """filter q (filter p (x))   →   filter p and q (x)"""
    if isinstance(plan, Filter) and isinstance(plan.input, Filter):
        return filtered(plan.input.input, [plan.input.predicate, plan.predicate])
    return plan


def push_filters(plan: Mir) -> Mir:
    """Move filters towards the tables.

        filter p (project e (x))     →   project e (filter p' (x)), for terms that read copied columns only
        filter p (window by a (x))   →   window by a (filter p (x)), for terms over the group
        filter p (join (l, r))       →   join (filter pl (l), filter pr (r)), for a left join only its left side

    GROUP_CONCAT and top-k are treated like windows.
    """
    if not isinstance(plan, Filter):
        return plan
    below, terms = plan.input, conjuncts(plan.predicate)
    if isinstance(below, Project):
        copied = {i for i, e in enumerate(below.exprs) if isinstance(e, (Col, Const))}
        low = [t for t in terms if columns_of(t) and columns_of(t) <= copied]
        if not low:
            return plan
        exprs = below.exprs
        pushed = filtered(below.input, [composed(t, exprs) for t in low])
        return filtered(projected(pushed, below.exprs, below.names), [t for t in terms if t not in low])
    if isinstance(below, (Window, GroupConcat, TopK)):
        return _below_groups(below, terms)
    if isinstance(below, Join):
        width = below.left.width
        left = [t for t in terms if columns_of(t) and max(columns_of(t)) < width]
        right = [] if below.outer else [t for t in terms if columns_of(t) and min(columns_of(t)) >= width]
        if not left and not right:
            return plan
        shifted = [substitute(t, lambda c: Col(c.type, c.nullable, c.index - width)) for t in right]
        joined = below.with_inputs(filtered(below.left, left), filtered(below.right, shifted))
        return filtered(joined, [t for t in terms if t not in left and t not in right])
    return plan


def _below_groups(below: Window | GroupConcat | TopK, terms: list[Expr]) -> Mir:
    """Move terms that read only group columns below the node, since each keeps or drops complete groups.  Not for CI
    text, which may have several spellings within a group."""
    if isinstance(below, GroupConcat):
        place = dict(enumerate(below.group))
    else:
        place = {c: c for c in (below.partition if isinstance(below, Window) else below.group)}
    place = {c: at for c, at in place.items() if not below.fields[c].type.folds}
    low = [t for t in terms if columns_of(t) and columns_of(t) <= set(place)]
    return filtered(below.with_inputs(filtered(below.input, [_moved(t, place) for t in low])),
                    [t for t in terms if t not in low])


def top_of_numbered(plan: Mir) -> Mir:
    """filter n <= 3 (window row_number() as n by a order b (x))   →   filter … (window … (top 3 by a order b (x)))"""
    if not isinstance(plan, Filter) or not isinstance(plan.input, Window):
        return plan
    window = plan.input
    if any(c.function != "row_number" for c in window.calls) or isinstance(window.input, TopK):
        return plan
    most = [m for t in conjuncts(plan.predicate) if (m := _most(t, window.input.width)) is not None]
    if not most or not 0 <= min(most) <= TOP_ROWS:
        return plan
    top = TopK(window.input, window.partition, window.order, min(most))
    return replace(plan, input=replace(window, input=top))


def _most(term: Expr, column: int) -> int | None:
    """The greatest value that a term allows for a column with index `column` or more; None if it sets no bound."""
    if not isinstance(term, Call) or term.op not in ("le", "lt", "eq", "ge", "gt"):
        return None
    a, b = term.args if term.op in ("le", "lt", "eq") else reversed(term.args)
    if isinstance(a, Const) and term.op == "eq":
        a, b = b, a
    if not isinstance(a, Col) or a.index < column or not isinstance(b, Const) or not isinstance(b.value, int):
        return None
    return b.value - (term.op in ("lt", "gt"))


def merge_projects(plan: Mir) -> Mir:
    """project f (project e (x))   →   project f∘e (x), unless a computed column would be computed twice"""
    if not isinstance(plan, Project) or not isinstance(plan.input, Project):
        return plan
    inner = plan.input
    uses = [c.index for e in plan.exprs for c in _columns(e)]
    if any(isinstance(inner.exprs[i], Call) and uses.count(i) > 1 for i in set(uses)):
        return plan
    return projected(inner.input, [composed(e, inner.exprs) for e in plan.exprs], plan.names)


def drop_copies(plan: Mir) -> Mir:
    """join (project all of x (x), r)   →   join (x, r): below the top, names do not matter"""
    inputs = tuple(without_copy(i) for i in plan.inputs)
    return plan if inputs == plan.inputs else plan.with_inputs(*inputs)


def without_copy(plan: Mir) -> Mir:
    """project all of x (x)   →   x"""
    if isinstance(plan, Project) and len(plan.exprs) == plan.input.width and all(
            isinstance(e, Col) and e.index == i for i, e in enumerate(plan.exprs)):
        return plan.input
    return plan


def narrow(plan: Mir) -> Mir:
    """project a (join (project a, b, c + 1 (x), r))   →   project a (join (project a (x), r)): drop unread columns.
    Only projections get narrower, so nodes that are shared stay equal."""
    return _Narrow()(plan, range(plan.width))[0]


Narrowed = tuple[Mir, dict[int, int]]  # a plan, and the new position of each needed column


class _Narrow:
    """One pass.  A part that occurs twice is narrowed once for the same columns."""

    def __init__(self) -> None:
        self._done: dict[tuple[Mir, tuple[int, ...]], Narrowed] = {}

    def __call__(self, plan: Mir, needed: Iterable[int]) -> Narrowed:
        """The plan with at least the needed columns, and their positions."""
        wanted = tuple(sorted(set(needed)))
        if (plan, wanted) not in self._done:
            self._done[plan, wanted] = self._narrowed(plan, wanted)
        return self._done[plan, wanted]

    def _narrowed(self, plan: Mir, wanted: tuple[int, ...]) -> Narrowed:
        if isinstance(plan, Project):
            kept = wanted or (0,)
            below, place = self(plan.input, {c for i in kept for c in columns_of(plan.exprs[i])})
            exprs = [_moved(plan.exprs[i], place) for i in kept]
            return projected(below, exprs, tuple(plan.names[i] for i in kept)), {i: n for n, i in enumerate(kept)}
        if isinstance(plan, Filter):
            below, place = self(plan.input, {*wanted, *columns_of(plan.predicate)})
            return filtered(below, [_moved(plan.predicate, place)]), place
        if isinstance(plan, Join):
            return self._join(plan, wanted)
        if isinstance(plan, Repeat):
            below, place = self(plan.input, {*wanted, plan.count})
            return Repeat(below, place[plan.count]), place
        if isinstance(plan, UnionAll):
            return self._union(plan, wanted)
        if isinstance(plan, Aggregate):
            read = {*plan.group, *(a.column for a in plan.aggs if a.column is not None)}
            below, place = self(plan.input, read)
            aggs = tuple(replace(a, column=None if a.column is None else place[a.column]) for a in plan.aggs)
            same = Aggregate(below, tuple(place[g] for g in plan.group), aggs, plan.names)
            return same, {i: i for i in range(plan.width)}
        inputs = tuple(self(i, range(i.width))[0] for i in plan.inputs)
        return plan.with_inputs(*inputs), {i: i for i in range(plan.width)}

    def _join(self, plan: Join, wanted: tuple[int, ...]) -> Narrowed:
        width = plan.left.width
        read = {*wanted, *(columns_of(plan.residual) if plan.residual else ())}
        left, l_place = self(plan.left, [c for c in read if c < width] + [a for a, _ in plan.on])
        right, r_place = self(plan.right, [c - width for c in read if c >= width] + [b for _, b in plan.on])
        on = tuple((l_place[a], r_place[b]) for a, b in plan.on)
        place = {**l_place, **{width + c: left.width + p for c, p in r_place.items()}}
        residual = plan.residual and _moved(plan.residual, place)
        return replace(plan, left=left, right=right, on=on, residual=residual), place

    def _union(self, plan: UnionAll, wanted: tuple[int, ...]) -> Narrowed:
        """Narrow both inputs to the same columns in the same positions."""
        (left, l_place), (right, r_place) = self(plan.left, wanted), self(plan.right, wanted)
        if (l_place, left.width) == (r_place, right.width):
            return UnionAll(left, right), l_place
        names = tuple(plan.fields[c].name for c in wanted)
        left, right = (projected(p, [cols_of(p)[place[c]] for c in wanted], names)
                       for p, place in ((left, l_place), (right, r_place)))
        return UnionAll(left, right), {c: i for i, c in enumerate(wanted)}


# ------------------------------------------------------------------ helpers
def filtered(plan: Mir, terms: list[Expr]) -> Mir:
    """A filter of the plan by these terms; the plan itself without terms."""
    condition = conjunction([_over(plan, t) for t in terms])
    return plan if condition is None else Filter(plan, condition)


def projected(plan: Mir, exprs: Iterable[Expr], names: tuple[str, ...]) -> Mir:
    return Project(plan, tuple(_over(plan, e) for e in exprs), names)


def _over(plan: Mir, e: Expr) -> Expr:
    """The expression with the types and nullability of the plan's columns."""
    fields = plan.fields
    return rebuilt(e, lambda c: Col(fields[c.index].type, fields[c.index].nullable, c.index))


def _moved(e: Expr, place: dict[int, int]) -> Expr:
    return substitute(e, lambda c: Col(c.type, c.nullable, place[c.index]))


def _columns(e: Expr) -> list[Col]:
    """Every occurrence of a column."""
    if isinstance(e, Col):
        return [e]
    return [c for a in e.args for c in _columns(a)] if isinstance(e, Call) else []


def everywhere(rewrite: Callable[[Mir], Mir]) -> Callable[[Mir], Mir]:
    """Make a pass of a rewrite of one node: applies it to every node, inputs first, and once to a repeated node."""

    def run(top: Mir) -> Mir:
        done: dict[Mir, Mir] = {}

        def go(plan: Mir) -> Mir:
            if plan not in done:
                inputs = tuple(map(go, plan.inputs))
                done[plan] = rewrite(plan if inputs == plan.inputs else plan.with_inputs(*inputs))
            return done[plan]

        return go(top)

    return run


PASSES: tuple[Callable[[Mir], Mir], ...] = (
    everywhere(merge_filters),
    everywhere(push_filters),
    everywhere(top_of_numbered),
    everywhere(merge_projects),
    everywhere(drop_copies),
    narrow,
)
