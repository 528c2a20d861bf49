"""Builds the plan of a resolved block above its joins: grouping, windows, then the select list.

    Project(Filter_having(Aggregate(Project?(joins and filters))))

Hidden columns follow the select list: keys and order columns that the query does not select.  Call `assemble`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import FIELD_IN_ORDER_NOT_SELECT, INVALID_GROUP_FUNC_USE
from noria.core.expressions.expr import Call, Col, Expr, substitute, walk
from noria.core.expressions.functions import call, canonical
from noria.plan.after import LookedUpRows, bound, with_leaf
from noria.plan.lookups import Key
from noria.plan.mir import Aggregate, Distinct, Filter, Mir, Project
from noria.sql.expressions.leaves import uses_aggregate
from noria.sql.expressions.unrounded import with_all_digits
from noria.sql.query.relations.block import Block
from noria.sql.query.relations.joins import JoinedPlan
from noria.sql.query.relations.planned import Correlation, PlannedQuery
from noria.sql.query.results.grouping import GroupedPlan, group, with_any_values
from noria.sql.query.results.merged_groups import regroup
from noria.sql.query.results.rollup import RolledUpPlan, groupings_in, is_rollup, rolled_up
from noria.sql.query.results.windows import windows_in, with_windows
from noria.sql.text.refusals import not_maintained, not_merged


def assemble(block: Block, joined: JoinedPlan) -> PlannedQuery:
    """Build the plan of a block above its joins.  Raises NotMaintained for a query that only Spark can answer."""
    computed = _over_groups(block, with_all_digits)
    aggregated = any(map(uses_aggregate, computed + block.after_having))
    if block.context.any_of_group and not aggregated and _is_ordered_by_others(block):
        _group_distinct(block)
    if block.context.any_of_group and (block.tree.args.get("group") is not None or aggregated):
        computed = _take_any_values(block)
    if is_rollup(block.tree):
        _check_rollup(block, computed)
    elif any(map(groupings_in, computed + block.after_having)):
        raise SqlError(*INVALID_GROUP_FUNC_USE, "Invalid use of group function: GROUPING without WITH ROLLUP")
    if (block.tree.args.get("group") is not None or aggregated) and _parts_needed(block):
        if any(map(windows_in, computed)):
            _check_windows(block, True)
        if block.above:
            raise not_maintained("a subquery beside aggregates, over the rows of several keys", block.tree)
        return _assemble_parts(block, joined, computed + block.after_having)
    grouped: GroupedPlan | None = None
    rewrite: Callable[[Expr], Expr]
    if block.tree.args.get("group") is not None or aggregated:
        if is_rollup(block.tree):
            grouped = rolled_up(block.context, block.tree, block.scope, joined, block.groups, _finer(block),
                                computed + block.after_having)
        else:
            grouped = group(block.context, block.tree, block.scope, joined, block.groups, _finer(block),
                            computed + block.after_having, _columns_above(block))
        for unit, on in block.above:
            grouped = grouped.joined(unit, on)
        if block.above and not grouped.grouped and (block.bound or block.outer_terms):
            raise not_maintained("a subquery beside an aggregate without GROUP BY, for each key", block.tree)
        plan, rewrite = grouped.having(block.having), grouped.expr
    else:
        out = joined.filtered(block.having)
        plan, rewrite = out.plan, out.expr
    windowed = [i.expr for i in block.items] + [e for e, _ in block.order]
    if any(map(windows_in, windowed)):
        _check_windows(block, grouped is not None and not grouped.grouped)
        plan, rewrite = with_windows(plan, rewrite, windowed, [b.column for b in block.bound])
    exprs = [rewrite(i.expr) for i in block.items]
    names = [i.name for i in block.items]
    distinct = block.tree.args.get("distinct") is not None
    keyed = grouped.key if isinstance(grouped, RolledUpPlan) else rewrite
    placed = _place_bound(block, keyed, exprs, names, plan)
    order = _place_order(block, [rewrite(e) for e, _ in block.order], exprs, names, distinct, plan)
    terms = _place_terms([rewrite(t) for t in block.after + block.after_having], exprs, names, plan)
    empty = grouped.empty_row(exprs[: len(block.items)]) if grouped and (placed or block.outer_terms) else None
    plan = _projected(plan, exprs, names)
    after = _filtered(LookedUpRows(plan.fields), terms) if terms else None
    after = after and bound(after, block.literals) if block.literals else after
    if distinct and (terms or _several(block)):
        after = _each_once(_shown(LookedUpRows(plan.fields) if after is None else after, len(block.items)))
    elif distinct:
        plan = Distinct(plan)
    return PlannedQuery(plan, len(block.items), _keys(placed), order, *_ends(block), empty, after, bool(block.literals),
                        _correlations(placed))


def _is_ordered_by_others(block: Block) -> bool:
    """True for SELECT DISTINCT a … ORDER BY b."""
    args, items = block.tree.args, [i.expr for i in block.items]
    return args.get("distinct") is not None and args.get("group") is None and not block.having and not any(
        map(windows_in, _computed(block))) and any(e not in items for e, _ in block.order)


def _group_distinct(block: Block) -> None:
    """Without ONLY_FULL_GROUP_BY, SELECT DISTINCT a … ORDER BY b is ordered by the b of some row with that a.

    SELECT DISTINCT a ORDER BY b   →   SELECT a GROUP BY a ORDER BY min(b)
    """
    block.groups = list(dict.fromkeys(i.expr for i in block.items))
    block.tree = block.tree.copy()
    block.tree.set("group", exp.Group(expressions=[item.unalias().copy() for item in block.tree.expressions]))
    block.tree.set("distinct", None)


def _take_any_values(block: Block) -> list[Expr]:
    """Replace the columns that are not determined by the groups.  Returns the computed expressions."""
    return _over_groups(block, partial(with_any_values, block.scope, block.groups, _columns_above(block)))


def _over_groups(block: Block, some: Callable[[Expr], Expr]) -> list[Expr]:
    """Change the expressions above a grouping.  Returns the computed ones."""
    block.above = [(unit, [_outer_side(t, some) for t in on]) for unit, on in block.above]
    block.items = [replace(i, expr=some(i.expr)) for i in block.items]
    block.order = [(some(e), descending) for e, descending in block.order]
    block.having = [some(e) for e in block.having]
    block.after_having = [some(e) for e in block.after_having]
    return _computed(block)


def _computed(block: Block) -> list[Expr]:
    """The expressions that are computed above a grouping, if there is one."""
    compared = [t.args[0] for _, on in block.above for t in on if isinstance(t, Call)]
    return [i.expr for i in block.items] + [e for e, _ in block.order] + block.having + compared


def _columns_above(block: Block) -> frozenset[int]:
    """The columns of subqueries that are joined above the grouping."""
    return frozenset(c for unit, _ in block.above for c in unit.positions)


def _outer_side(term: Expr, some: Callable[[Expr], Expr]) -> Expr:
    """A term of such a subquery, whose outer side is over the groups."""
    return replace(term, args=(some(term.args[0]), *term.args[1:])) if isinstance(term, Call) else term


def _assemble_parts(block: Block, joined: JoinedPlan, computed: list[Expr]) -> PlannedQuery:
    """The query with a grouping whose parts are looked up and then merged (`merged_groups`)."""
    found = regroup(block.context, block.tree, block.scope, joined, block.groups, _finer(block), computed)
    plan: Mir = found.parts.plan
    placed = [b.at(found.parts.places[b.column]) for b in block.bound]
    if len({b.column for b in placed}) < len(placed):
        raise not_maintained("a column that is compared with two parameters here", block.tree)
    terms = [found.parts.expr(t) for t in block.after]
    merged = with_leaf(found.merged, _filtered(LookedUpRows(plan.fields), terms))
    merged = _filtered(merged, [found.expr(t) for t in block.having + block.after_having])
    exprs = [found.expr(i.expr) for i in block.items]
    names = [i.name for i in block.items]
    distinct = block.tree.args.get("distinct") is not None
    order = _place_order(block, [found.expr(e) for e, _ in block.order], exprs, names, distinct, merged)
    after: Mir = Project(merged, tuple(exprs), tuple(names))
    if distinct:
        after = _each_once(after)
    return PlannedQuery(plan, len(block.items), _keys(placed), order, *_ends(block), None, after,
                        correlations=_correlations(placed))


def _check_rollup(block: Block, computed: list[Expr]) -> None:
    """Refuse WITH ROLLUP if its totals are over the rows of several keys, or HAVING must see the total of no rows."""
    if block.above:
        raise not_merged("a subquery beside WITH ROLLUP", block.tree, "write it in a query around this one")
    if _several(block) or block.after:
        raise not_merged("WITH ROLLUP over the rows of several keys", block.tree,
                             "ask for one key at a time, by `column = ?`")
    if block.bound and (block.having or block.after_having or any(map(windows_in, computed))):
        raise not_merged("WITH ROLLUP by a key beside HAVING or window functions", block.tree,
                             "put the condition into a query around it")


def _check_windows(block: Block, ungrouped: bool) -> None:
    """Refuse windows over the rows of several keys.  `ungrouped`: the block aggregates without GROUP BY, so each lookup
    has one row."""
    if _several(block) or block.after or block.after_having:
        raise not_merged("a window function over the rows of several keys", block.tree,
                             "ask for one key at a time, by `column = ?`")
    if ungrouped and block.bound:
        raise not_merged("a window function over an aggregate without GROUP BY", block.tree)


def _several(block: Block) -> bool:
    """Whether one lookup may ask for several keys."""
    return any(k.lookup.several for k in block.keys)


def _finer(block: Block) -> list[Expr]:
    """The columns that a grouping needs beside its own: keys, and columns of conditions after the lookup."""
    columns = {c.index: c for t in block.after for c in walk(t) if isinstance(c, Col)}
    return list(dict.fromkeys([*(b.column for b in block.bound), *(columns[i] for i in sorted(columns))]))


def _parts_needed(block: Block) -> bool:
    """Whether groups are completed after the lookup: it can find several parts of one, or HAVING must see no rows."""
    if is_rollup(block.tree):
        return False
    several = [k.column for k in block.keys if k.lookup.several]
    several += [c for t in block.after for c in walk(t) if isinstance(c, Col)]
    fixed = block.scope.determined({g.index for g in block.groups if isinstance(g, Col)})
    parts = any(e not in block.groups and not (isinstance(e, Col) and e.index in fixed) for e in several)
    over_nothing = not block.groups and bool(block.bound)  # in the view, a row that HAVING drops looks like no rows
    return parts or (over_nothing and bool(block.having or block.after_having))


def _ends(block: Block) -> tuple[exp.Expr | None, exp.Expr | None]:
    limit, offset = (block.tree.args.get(n) for n in ("limit", "offset"))
    return limit and limit.expression, offset and offset.expression


def _place_terms(terms: list[Expr], exprs: list[Expr], names: list[str], plan: Mir) -> list[Expr]:
    """Rewrite conditions to the positions of the select list; append columns that are not selected."""

    def column(c: Col) -> Expr:
        if c not in exprs:
            exprs.append(c)
            names.append(plan.fields[c.index].name)
        return Col(c.type, c.nullable, exprs.index(c))

    return [substitute(t, column) for t in terms]


def _filtered(plan: Mir, terms: list[Expr]) -> Mir:
    return Filter(plan, canonical(call("and", *terms))) if terms else plan


def _shown(plan: Mir, width: int) -> Mir:
    """The plan without hidden columns."""
    fields = plan.fields[:width]
    return Project(plan, tuple(Col(f.type, f.nullable, i) for i, f in enumerate(fields)),
                   tuple(f.name for f in fields))


def _each_once(plan: Mir) -> Mir:
    """DISTINCT after a lookup, as a grouping by every column."""
    return Aggregate(plan, tuple(range(plan.width)), (), ())


def _place_bound(block: Block, rewrite: Callable[[Expr], Expr], exprs: list[Expr], names: list[str], plan: Mir
                 ) -> list[Key[int] | Correlation[int]]:
    """Locate the columns of keys and correlations in the select list, or append them.  A column that is bound twice
    occurs twice."""
    out: list[Key[int] | Correlation[int]] = []
    for one in block.bound:
        e, used = rewrite(one.column), {b.column for b in out}
        at = next((i for i, x in enumerate(exprs) if x == e and i not in used), None)
        if at is None:
            at = len(exprs)
            exprs.append(e)
            names.append(plan.fields[e.index].name if isinstance(e, Col) else f"key{len(out)}")
        out.append(one.at(at))
    return out


def _keys(placed: list[Key[int] | Correlation[int]]) -> tuple[Key[int], ...]:
    return tuple(b for b in placed if isinstance(b, Key))


def _correlations(placed: list[Key[int] | Correlation[int]]) -> tuple[Correlation[int], ...]:
    return tuple(b for b in placed if not isinstance(b, Key))


def _place_order(block: Block, order: list[Expr], exprs: list[Expr], names: list[str], distinct: bool, plan: Mir
                 ) -> tuple[tuple[int, bool], ...]:
    out: dict[int, bool] = {}
    for (_, descending), e in zip(block.order, order, strict=True):
        if e not in exprs:
            if distinct:
                raise SqlError(*FIELD_IN_ORDER_NOT_SELECT,
                               "Expression of ORDER BY clause is not in SELECT list; this is "
                               "incompatible with DISTINCT")
            exprs.append(e)
            names.append(plan.fields[e.index].name if isinstance(e, Col) else f"order{len(out)}")
        out.setdefault(exprs.index(e), descending)
    return tuple(out.items())


def _projected(plan: Mir, exprs: list[Expr], names: list[str]) -> Mir:
    """Project the expressions.  Returns the plan itself if they are its own columns under their own names."""
    same = len(exprs) == plan.width and all(
        isinstance(e, Col) and e.index == i and f.name == n
        for i, (e, n, f) in enumerate(zip(exprs, names, plan.fields, strict=False)))
    return plan if same else Project(plan, tuple(exprs), tuple(names))
