"""The query graph of one block (relations, equalities between them, filters), and the join plan made from it (§5.1).

    FROM a, b LEFT JOIN c ON … WHERE …   →   filters on their relations, joins in one canonical order

* A unit is a relation, or joins in brackets, which are planned by themselves.
* A filter on one relation is directly above it; a filter on several is above the join that has all of them.
* Inner-joined relations come first, in an order that does not depend on how the query is written.  Then come the
  LEFT JOINs as written, with the inner joins that need their columns.
* A LEFT JOIN becomes an inner join if WHERE rejects its NULL-extended rows.
* Join keys are columns; an expression, or a column of another type, is projected first.  Without an equality the key
  is a constant.  The other terms of an outer join's ON are its residual condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from noria.core.errors import not_supported
from noria.core.expressions.expr import Call, Col, Expr, columns_of
from noria.core.expressions.functions import cast, common_type, conjunction, literal, rebuilt
from noria.core.expressions.functions.failing import has_only_one
from noria.core.types import BYTES, DOUBLE, TEXT_BIN, Kind, SqlType
from noria.plan.columns import cols_of
from noria.plan.lookups import Key
from noria.plan.mir import Filter, Join, Mir, Project
from noria.sql.query.relations.scope import ScopeRelation

_STRICT = {"eq", "ne", "lt", "le", "gt", "ge", "like", "add", "sub", "mul", "div", "intdiv", "mod", "neg", "abs",
           "round", "floor", "ceil", "cast", "concat", "lower", "upper", "length", "char_length", "substring", "trim"}


EQUALITIES = ("eq", "nseq")


def is_equality(term: Expr) -> TypeGuard[Call]:
    """Whether rows can be matched by the term.  A subquery that must have one row is no key: an error matches no row,
    so nobody would see it."""
    return isinstance(term, Call) and term.op in EQUALITIES and not has_only_one(term)


@dataclass(frozen=True)
class JoinPair:
    """Two expressions that a join compares, one of each side.  `null_safe`: compared by `<=>`."""

    left: Expr
    right: Expr
    null_safe: bool = False

    def of_one_type(self) -> JoinPair:
        t = _key_type(self.left.type, self.right.type)
        return self if t is None else JoinPair(cast(self.left, t), cast(self.right, t), self.null_safe)


@dataclass
class JoinSpec:
    """How a unit after the first joins (`left`: by a LEFT JOIN), and the terms of its ON."""

    unit: int
    left: bool
    on: list[Expr]


@dataclass(frozen=True)
class JoinedPlan:
    """A plan, and the positions of the block's columns in it."""

    plan: Mir
    positions: dict[int, int]

    def expr(self, e: Expr) -> Expr:
        """Rewrite an expression over the block's columns to one over the plan's."""
        return rebuilt(e, self.column)

    def column(self, c: Col) -> Col:
        f = self.plan.fields[self.positions[c.index]]
        return Col(f.type, f.nullable, self.positions[c.index])

    def filtered(self, terms: Sequence[Expr]) -> JoinedPlan:
        condition = conjunction([self.expr(t) for t in terms])
        return self if condition is None else JoinedPlan(Filter(self.plan, condition), self.positions)


@dataclass
class QueryGraph:
    """The units of FROM and the joins between them.  `keys`: the keys of derived tables."""

    units: list[JoinedPlan]
    joins: list[JoinSpec]
    keys: list[Key[Expr]] = field(default_factory=list)

    def join(self, unit: JoinedPlan, left: bool, on: list[Expr]) -> None:
        self.joins.append(JoinSpec(len(self.units), left, on))
        self.units.append(unit)

    def joined(self) -> JoinedPlan:
        """Join all units; WHERE is not applied."""
        return JoinBuilder(self).build()


def unit_of(source: ScopeRelation) -> JoinedPlan:
    return JoinedPlan(source.plan, {source.offset + i: i for i in range(source.plan.width)})


class JoinBuilder:
    """Builds the join plan of one block; call `build` once."""

    def __init__(self, relations: QueryGraph, where: Sequence[Expr] = (), equal_to_key: Sequence[Expr] = ()):
        """`equal_to_key`: key expressions, which are never NULL in a row that a lookup finds."""
        self._units, self._joins, self._where = relations.units, relations.joins, list(where)
        self._strict_keys = equal_to_key
        self._unit = {c: i for i, u in enumerate(self._units) for c in u.positions}

    def build(self) -> JoinedPlan:
        self._make_inner()
        core, later = self._split()
        pool = self._where + [t for j in self._joins if j.unit in core for t in j.on]
        inside = [t for t in pool if self._sources(t) <= core]
        rest = [t for t in self._where if not self._sources(t) <= core]
        out = self._join_core(sorted(core), inside)
        have = set(core)
        for spec in later:
            have.add(spec.unit)
            ready = [t for t in rest if self._sources(t) <= have]
            rest = [t for t in rest if t not in ready]
            if spec.left:
                out = self._left_join(out, spec).filtered(ready)
            else:
                out = self._inner_join(out, self._units[spec.unit], [*spec.on, *ready])
        return out

    # ------------------------------------------------------------ which relations, in which order
    def _sources(self, e: Expr) -> frozenset[int]:
        return frozenset(self._unit[c] for c in columns_of(e))

    def _make_inner(self) -> None:
        """a LEFT JOIN b … WHERE b.x = 1   →   a JOIN b … WHERE b.x = 1"""
        changed = True
        while changed:
            changed = False
            terms = self._where + [t for j in self._joins if not j.left for t in j.on]
            for j in self._joins:
                if j.left and (any(self._rejects(t, j.unit) for t in terms)
                               or any(self._strict(k, j.unit) for k in self._strict_keys)):
                    j.left, changed = False, True

    def _rejects(self, term: Expr, source: int) -> bool:
        """Whether the term is never true if all columns of the unit are NULL."""
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
        """Whether the expression is NULL if all columns of the unit are NULL."""
        if isinstance(e, Col):
            return self._unit[e.index] == source
        return isinstance(e, Call) and e.op in _STRICT and any(self._strict(a, source) for a in e.args)

    def _split(self) -> tuple[set[int], list[JoinSpec]]:
        """Split the joins: the units that inner joins connect among themselves, and the later joins."""
        core, later = {0}, list(self._joins)
        changed = True
        while changed:
            changed = False
            for j in later:
                if not j.left and frozenset().union(*map(self._sources, j.on)) <= core | {j.unit}:
                    core.add(j.unit)
                    later.remove(j)
                    changed = True
                    break
        return core, later

    def _join_core(self, sources: list[int], terms: list[Expr]) -> JoinedPlan:
        """Join the units greedily along equalities.  The first is the one whose printed plan, without names, sorts
        first."""
        local = {s: [t for t in terms if self._sources(t) == {s}] for s in sources}
        across = [t for t in terms if len(self._sources(t)) > 1]
        constant = [t for t in terms if not self._sources(t)]
        relations = {s: self._units[s].filtered(local[s]) for s in sources}
        order = sorted(sources, key=lambda s: (_structure(relations[s].plan), s))
        have, waiting = {order[0]}, order[1:]
        out = relations[order[0]]
        while waiting:
            chosen = next((s for s in waiting if any(self._edge(t, have, s) for t in across)), waiting[0])
            waiting.remove(chosen)
            have.add(chosen)
            ready = [t for t in across if self._sources(t) <= have]
            across = [t for t in across if t not in ready]
            out = self._inner_join(out, relations[chosen], ready)
        return out.filtered(constant)

    def _edge(self, t: Expr, have: set[int], source: int) -> bool:
        """Whether the term is an equality between the joined units and this one."""
        if not is_equality(t):
            return False
        a, b = map(self._sources, t.args)
        return bool(a) and bool(b) and ((a <= have and b == {source}) or (b <= have and a == {source}))

    # ------------------------------------------------------------ one join
    def _pairs(self, left: JoinedPlan, right: JoinedPlan, terms: Sequence[Expr]) -> tuple[list[JoinPair], list[Expr]]:
        """The equalities between the two sides (a constant one if there are none), and the other terms."""
        pairs, other = [], []
        l_cols, r_cols = set(left.positions), set(right.positions)
        for t in terms:
            if is_equality(t):
                a, b = t.args
                if columns_of(b) <= l_cols and columns_of(a) <= r_cols:
                    a, b = b, a
                if columns_of(a) and columns_of(b) and columns_of(a) <= l_cols and columns_of(b) <= r_cols:
                    pairs.append(JoinPair(left.expr(a), right.expr(b), t.op == "nseq"))
                    continue
            other.append(t)
        return pairs or [JoinPair(literal(1), literal(1))], other

    def _inner_join(self, left: JoinedPlan, right: JoinedPlan, terms: Sequence[Expr]) -> JoinedPlan:
        pairs, other = self._pairs(left, right, terms)
        return _joined(left, right, pairs, False).filtered(other)

    def _left_join(self, left: JoinedPlan, spec: JoinSpec) -> JoinedPlan:
        local = [t for t in spec.on if self._sources(t) == {spec.unit}]
        right = self._units[spec.unit].filtered(local)
        pairs, other = self._pairs(left, right, [t for t in spec.on if t not in local])
        return _joined(left, right, pairs, True, other)


def _joined(left: JoinedPlan, right: JoinedPlan, pairs: list[JoinPair], outer: bool,
            residual: Sequence[Expr] = ()) -> JoinedPlan:
    """Join on the pairs; expressions and columns of different types are projected first.  `residual`: the further
    terms of an outer join."""
    same = [p.of_one_type() for p in pairs]
    left_plan, left_keys = _with_columns(left.plan, [p.left for p in same])
    right_plan, right_keys = _with_columns(right.plan, [p.right for p in same])
    strict = {(a, b) for a, b, p in zip(left_keys, right_keys, same, strict=True) if not p.null_safe}
    on = tuple(sorted({*strict, *zip(left_keys, right_keys, strict=True)}))
    safe = tuple(i for i, pair in enumerate(on) if pair not in strict)
    positions = dict(left.positions)
    positions.update({c: left_plan.width + p for c, p in right.positions.items()})
    join = Join(left_plan, right_plan, on, outer, safe)
    condition = conjunction([JoinedPlan(join, positions).expr(t) for t in residual])
    return JoinedPlan(replace(join, residual=condition), positions)


def left_joined(left: JoinedPlan, right: JoinedPlan, pairs: list[JoinPair]) -> JoinedPlan:
    """LEFT JOIN two plans on the pairs."""
    return _joined(left, right, pairs, True)


def _structure(plan: Mir) -> str:
    """The printed plan without column names, which are no part of equality."""
    own = f"project {', '.join(map(str, plan.exprs))}" if isinstance(plan, Project) else str(plan)
    return "\n ".join([own, *(_structure(i).replace("\n", "\n ") for i in plan.inputs)])


def _key_type(a: SqlType, b: SqlType) -> SqlType | None:
    """The type to which both keys must be cast, or None.  Raises for types that cannot be joined."""
    if a.is_json != b.is_json or {a.kind, b.kind} in _TODAY:
        raise not_supported(f"a join of {a} with {b}", "cast one of them")
    if a.is_text and b.is_text:
        return BYTES if a.is_bytes != b.is_bytes else None if a.folds == b.folds else TEXT_BIN
    if a.is_listed or b.is_listed:
        return None if a == b else DOUBLE if a.is_number or b.is_number else common_type([a, b])
    if a.kind is b.kind and (a.scale == b.scale or not a.is_number):
        return None
    return common_type([a, b]) if a.is_number == b.is_number else DOUBLE


_TODAY = ({Kind.TIME, Kind.DATE}, {Kind.TIME, Kind.DATETIME})  # comparing these depends on the current day


def _with_columns(plan: Mir, keys: list[Expr]) -> tuple[Mir, list[int]]:
    """The plan with a column for each key, and the keys' positions."""
    computed = [k for k in dict.fromkeys(keys) if not isinstance(k, Col)]
    if computed:
        copies: list[Expr] = [*cols_of(plan)]
        names = [f.name for f in plan.fields] + [f"key{i}" for i in range(len(computed))]
        projected = Project(plan, (*copies, *computed), tuple(names))
        place = {k: plan.width + i for i, k in enumerate(computed)}
        return projected, [k.index if isinstance(k, Col) else place[k] for k in keys]
    return plan, [k.index for k in keys if isinstance(k, Col)]

