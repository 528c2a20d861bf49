"""The query graph of one block: relations, equalities between them, filters; and the join plan made of it (§5.1).

    FROM a, b LEFT JOIN c ON … WHERE …   →   filters on their relations, joins in one canonical order

* A filter on one relation sits directly above it; one on several as soon as these are joined.
* Inner-joined relations come first, in an order that does not depend on how the query was written; then the
  LEFT JOINs as written, with inner joins that need their columns.
* A LEFT JOIN whose NULL-extended rows WHERE throws away is an inner join.
* Join keys are columns; an expression, or a column of another type, is projected first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noria.core.expr import Call, Col, Expr, columns_of
from noria.core.functions import NULL, call, cast, common_type, conjunction, literal, rebuilt
from noria.core.types import TEXT_BIN, SqlType
from noria.plan.mir import Filter, Join, Mir, Project, show
from noria.sql.scope import Scope

_STRICT = {"eq", "ne", "lt", "le", "gt", "ge", "like", "add", "sub", "mul", "div", "intdiv", "mod", "neg", "abs",
           "round", "floor", "ceil", "cast", "concat", "lower", "upper", "length", "char_length", "substring", "trim"}


@dataclass
class JoinSpec:
    """A relation of FROM after the first: how it joins, and the terms of its ON.  `refuse` makes the error for
    a join that is not maintained."""

    source: int
    left: bool
    on: list[Expr]
    refuse: Callable[[str], Exception]


@dataclass(frozen=True)
class Joined:
    """A plan and where it has the block's columns."""

    plan: Mir
    positions: dict[int, int]

    def expr(self, e: Expr) -> Expr:
        """An expression over the block's columns as one over the plan's."""
        return rebuilt(e, self.column)

    def column(self, c: Col) -> Col:
        f = self.plan.fields[self.positions[c.index]]
        return Col(f.type, f.nullable, self.positions[c.index])

    def filtered(self, terms: Sequence[Expr]) -> Joined:
        condition = conjunction([self.expr(t) for t in terms])
        return self if condition is None else Joined(Filter(self.plan, condition), self.positions)


class Builder:
    """Makes the join plan of one block."""

    def __init__(self, scope: Scope, joins: list[JoinSpec], where: list[Expr], equal_to_key: list[Expr],
                 cross: bool = False):
        """equal_to_key: expressions that a parameter or literal is compared with; cross: may relations be
        joined without an equality?"""
        self._scope, self._joins, self._where = scope, joins, list(where)
        self._strict_keys, self._cross = equal_to_key, cross

    def build(self) -> Joined:
        self._make_inner()
        core, later = self._split()
        pool = self._where + [t for j in self._joins if j.source in core for t in j.on]
        inside = [t for t in pool if self._sources(t) <= core]
        rest = [t for t in self._where if not self._sources(t) <= core]
        out = self._join_core(sorted(core), inside)
        have = set(core)
        for spec in later:
            have.add(spec.source)
            ready = [t for t in rest if self._sources(t) <= have]
            rest = [t for t in rest if t not in ready]
            if spec.left:
                out = self._left_join(out, spec).filtered(ready)
            else:
                out = self._inner_join(out, self._relation(spec.source, []), [*spec.on, *ready], spec)
        return out

    # ------------------------------------------------------------ which relations, in which order
    def _sources(self, e: Expr) -> frozenset[int]:
        return frozenset(self._scope.source_of(c) for c in columns_of(e))

    def _make_inner(self) -> None:
        """a LEFT JOIN b … WHERE b.x = 1   →   a JOIN b … WHERE b.x = 1"""
        changed = True
        while changed:
            changed = False
            terms = self._where + [t for j in self._joins if not j.left for t in j.on]
            for j in self._joins:
                if j.left and (any(self._rejects(t, j.source) for t in terms)
                               or any(self._strict(k, j.source) for k in self._strict_keys)):
                    j.left, changed = False, True
                    self._scope.sources[j.source].outer = False

    def _rejects(self, term: Expr, source: int) -> bool:
        """Is the term never true when the source's columns are all NULL?"""
        if isinstance(term, Call) and term.op == "and":
            return any(self._rejects(a, source) for a in term.args)
        if isinstance(term, Call) and term.op == "or":
            return all(self._rejects(a, source) for a in term.args)
        if isinstance(term, Call) and term.op == "in":
            return self._strict(term.args[0], source)
        if isinstance(term, Call) and term.op == "not":
            inner = term.args[0]
            if isinstance(inner, Call) and inner.op == "is_null":
                return self._strict(inner.args[0], source)
            return isinstance(inner, Call) and inner.op in ("in", "like") and self._strict(inner.args[0], source)
        return self._strict(term, source)

    def _strict(self, e: Expr, source: int) -> bool:
        """Is the expression NULL when the source's columns are?"""
        if isinstance(e, Col):
            return self._scope.source_of(e.index) == source
        return isinstance(e, Call) and e.op in _STRICT and any(self._strict(a, source) for a in e.args)

    def _split(self) -> tuple[set[int], list[JoinSpec]]:
        """The relations joined by inner joins among themselves, and the joins that come after."""
        core, later = {0}, list(self._joins)
        changed = True
        while changed:
            changed = False
            for j in later:
                if not j.left and frozenset().union(*map(self._sources, j.on)) <= core | {j.source}:
                    core.add(j.source)
                    later.remove(j)
                    changed = True
                    break
        return core, later

    def _relation(self, source: int, terms: Sequence[Expr]) -> Joined:
        s = self._scope.sources[source]
        return Joined(s.plan, {s.offset + i: i for i in range(s.plan.width)}).filtered(terms)

    def _join_core(self, sources: list[int], terms: list[Expr]) -> Joined:
        """Greedy from the relation whose plan comes first in print, along equalities."""
        local = {s: [t for t in terms if self._sources(t) == {s}] for s in sources}
        across = [t for t in terms if len(self._sources(t)) > 1]
        constant = [t for t in terms if not self._sources(t)]
        relations = {s: self._relation(s, local[s]) for s in sources}
        order = sorted(sources, key=lambda s: (show(relations[s].plan), s))
        have, waiting = {order[0]}, order[1:]
        out = relations[order[0]]
        while waiting:
            chosen = next((s for s in waiting if any(self._edge(t, have, s) for t in across)), waiting[0])
            waiting.remove(chosen)
            have.add(chosen)
            ready = [t for t in across if self._sources(t) <= have]
            across = [t for t in across if t not in ready]
            spec = next((j for j in self._joins if j.source == chosen), self._joins[0])
            out = self._inner_join(out, relations[chosen], ready, spec)
        return out.filtered(constant)

    def _edge(self, t: Expr, have: set[int], source: int) -> bool:
        """Is the term an equality between what is joined and this relation?"""
        if not isinstance(t, Call) or t.op != "eq":
            return False
        a, b = map(self._sources, t.args)
        return bool(a) and bool(b) and ((a <= have and b == {source}) or (b <= have and a == {source}))

    # ------------------------------------------------------------ one join
    def _pairs(self, left: Joined, right: Joined, terms: Sequence[Expr]) -> tuple[list[tuple[Expr, Expr]], list[Expr]]:
        """The equalities between the two sides (left first), and the other terms."""
        pairs, other = [], []
        l_cols, r_cols = set(left.positions), set(right.positions)
        for t in terms:
            if isinstance(t, Call) and t.op == "eq":
                a, b = t.args
                if columns_of(b) <= l_cols and columns_of(a) <= r_cols:
                    a, b = b, a
                if columns_of(a) and columns_of(b) and columns_of(a) <= l_cols and columns_of(b) <= r_cols:
                    pairs.append((left.expr(a), right.expr(b)))
                    continue
            other.append(t)
        return pairs, other

    def _inner_join(self, left: Joined, right: Joined, terms: Sequence[Expr], spec: JoinSpec) -> Joined:
        pairs, other = self._pairs(left, right, terms)
        if not pairs:
            if not self._cross:
                raise spec.refuse("a join without an equality between the two sides (column = column)")
            pairs = [(literal(1), literal(1))]
        return _joined(left, right, pairs, outer=False).filtered(other)

    def _left_join(self, left: Joined, spec: JoinSpec) -> Joined:
        local = [t for t in spec.on if self._sources(t) == {spec.source}]
        right = self._relation(spec.source, local)
        pairs, other = self._pairs(left, right, [t for t in spec.on if t not in local])
        if not pairs:
            raise spec.refuse("a LEFT JOIN without an equality between the two sides (column = column)")
        if any(not columns_of(t) <= set(left.positions) for t in other):
            raise spec.refuse("a LEFT JOIN with a condition over both sides that is no equality")
        if other:
            pairs = _guarded(pairs, left, other)
        return _joined(left, right, pairs, outer=True)


def _guarded(pairs: list[tuple[Expr, Expr]], left: Joined, conditions: list[Expr]) -> list[tuple[Expr, Expr]]:
    """ON l.a = r.b AND l.c > 1   →   ON if(l.c > 1, l.a, NULL) = r.b: a NULL key matches nothing."""
    (a, b), *rest = pairs
    condition = conjunction([left.expr(t) for t in conditions])
    return pairs if condition is None else [(call("if", condition, a, NULL), b), *rest]


def _joined(left: Joined, right: Joined, pairs: list[tuple[Expr, Expr]], outer: bool) -> Joined:
    """The join on these pairs of expressions, projected to columns of one type first."""
    cast_pairs = [(cast(a, t), cast(b, t)) if (t := _key_type(a.type, b.type)) is not None else (a, b)
                  for a, b in pairs]
    left_plan, left_keys = _with_columns(left.plan, [a for a, _ in cast_pairs])
    right_plan, right_keys = _with_columns(right.plan, [b for _, b in cast_pairs])
    on = tuple(sorted(set(zip(left_keys, right_keys, strict=True))))
    positions = dict(left.positions)
    positions.update({c: left_plan.width + p for c, p in right.positions.items()})
    return Joined(Join(left_plan, right_plan, on, outer), positions)


def _key_type(a: SqlType, b: SqlType) -> SqlType | None:
    """The type both keys need a cast to, if any."""
    if a.is_text and b.is_text:
        return None if a.folds == b.folds else TEXT_BIN
    if a.kind is b.kind and (a.scale == b.scale or not a.is_number):
        return None
    return common_type([a, b])


def _with_columns(plan: Mir, keys: list[Expr]) -> tuple[Mir, list[int]]:
    """The plan with a column for each key, and their positions."""
    computed = [k for k in dict.fromkeys(keys) if not isinstance(k, Col)]
    if computed:
        copies: list[Expr] = [Col(f.type, f.nullable, i) for i, f in enumerate(plan.fields)]
        names = [f.name for f in plan.fields] + [f"key{i}" for i in range(len(computed))]
        projected = Project(plan, (*copies, *computed), tuple(names))
        place = {k: plan.width + i for i, k in enumerate(computed)}
        return projected, [k.index if isinstance(k, Col) else place[k] for k in keys]
    return plan, [k.index for k in keys if isinstance(k, Col)]

