"""A SELECT as a plan (MIR): FROM and WHERE, then grouping, then HAVING, then the columns (§5.1).

    Project(Filter_having(Aggregate(Project?(joins and filters))))

`plan_query` gives the plan with the positions of what is asked for; views, ad-hoc SELECTs, derived tables and
Spark's queries are all made from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sqlglot import exp

from noria.core.errors import SqlError, name_too_long, parse_error, too_many_columns, unknown_column
from noria.core.expr import Call, Col, Const, Expr, columns_of, conjuncts, substitute, walk
from noria.core.functions import call, canonical
from noria.core.limits import MAX_ALIAS_CHARS, MAX_COLUMNS
from noria.plan.after import Found, bound, over
from noria.plan.lookups import Key, Parameter
from noria.plan.mir import Aggregate, Distinct, Filter, Mir, Project
from noria.sql import sources
from noria.sql.block import Block, Item
from noria.sql.calls import columns_read, uses_aggregate
from noria.sql.context import Context
from noria.sql.grouping import group
from noria.sql.parameters import (
    after_terms,
    as_parameters,
    has_parameter,
    key_term,
    literal_range,
    range_key,
)
from noria.sql.planned import Correlation, Query
from noria.sql.querygraph import Builder, Joined
from noria.sql.refusals import not_maintained, refuse
from noria.sql.regroup import regroup
from noria.sql.scalars import Resolver
from noria.sql.scope import Scope
from noria.sql.subqueries import CORRELATED, add_domain, correlation, holds, null_safe, subquery
from noria.sql.tree import is_membership, only, snippet
from noria.sql.windows import windows_in, with_windows

_CLAUSES = frozenset({"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
                      "distinct", "with_", "operation_modifiers", "kind", "windows"})
_HARMLESS = {"SQL_NO_CACHE", "SQL_CACHE", "SQL_BUFFER_RESULT", "SQL_SMALL_RESULT", "SQL_BIG_RESULT", "HIGH_PRIORITY",
             "STRAIGHT_JOIN", "ALL"}

NUMBERS = 1 << 20  # columns of a query, at most: an inner query's have numbers after them


def resolver_of(block: Block, clause: str, aggregates: bool = False,
                column: Callable[[str, str, str], Expr] | None = None) -> Resolver:
    """What gives the block's expressions their meaning; of its own columns, then of the outer query's."""
    return Resolver(column or block.column, block.context.parameter, clause, aggregates,
                    subquery=partial(subquery, block))


def plan_query(context: Context, tree: exp.Select, top: bool = False, outer: Scope | None = None) -> Query:
    """Plan one SELECT.  top: its keys may be parameters, and literals when the context is ad hoc.  outer: the names of
    the query in whose expressions it stands."""
    _check_clauses(tree)
    scope = Scope(0 if outer is None else outer.start + NUMBERS)
    context, relations = sources.resolve_from(context, tree, scope, top)
    block = Block(context, tree, scope, relations, outer, keys=list(relations.keys))
    _resolve_where(block, top)
    add_domain(block)
    _resolve_items(block)
    _resolve_groups(block)
    _resolve_having(block, top)
    _resolve_order(block)
    _check_outer(block)
    builder = Builder(relations, block.where, [b.column for b in block.bound if not null_safe(b)])
    query = _assemble(block, builder.build())
    return query if outer is None else replace(query, given=tuple(block.given), single=_single(block))


def _check_outer(block: Block) -> None:
    """Outer columns stand in WHERE only, where `correlation` takes them."""
    asked = [*(i.expr for i in block.items), *block.groups, *block.having, *(e for e, _ in block.order),
             *block.where, *block.after]
    if any(c < block.scope.start for e in asked for c in columns_read(e)):
        raise not_maintained("a subquery with the outer query's columns here", block.tree, CORRELATED)


def _single(block: Block) -> bool:
    """Has it one row at most, where its keys have one value?"""
    fixed = [b.column for b in block.bound]
    equal = [t.args for t in block.where if isinstance(t, Call) and t.op == "eq"]
    fixed += [a for x, y in equal for a, b in ((x, y), (y, x)) if isinstance(b, Const)]
    if block.tree.args.get("group") is not None or any(uses_aggregate(i.expr) for i in block.items):
        return set(block.groups) <= set(fixed)
    known = block.scope.determined({c.index for c in fixed if isinstance(c, Col)})
    return all(s.offset in known for s in block.scope.sources) and all(
        c in known for s in block.scope.sources for c in range(s.offset, s.end))


def _check_clauses(tree: exp.Select) -> None:
    if not tree.expressions:
        raise parse_error("SELECT without anything to select")
    only(tree, _CLAUSES | {"locks", "hint"}, "SELECT")  # a hint asks for a way, not for other rows
    for modifier in tree.args.get("operation_modifiers") or []:
        if modifier.name.upper() not in _HARMLESS:
            raise refuse(modifier.name.upper(), tree)
    for name, known in (("distinct", ()), ("limit", ("expression",)), ("offset", ("expression",)), ("where", ("this",)),
                        ("having", ("this",)), ("order", ("expressions",))):
        if tree.args.get(name) is not None:
            only(tree.args[name], frozenset(known), name.upper())
    if tree.args.get("locks"):
        raise refuse("FOR UPDATE and FOR SHARE", tree, "there are no locks; leave the clause out")


# ------------------------------------------------------------------ the clauses
def _terms(node: exp.Expr) -> list[exp.Expr]:
    """The conjuncts of a condition as written."""
    if isinstance(node, exp.Paren):
        return _terms(node.this)
    if isinstance(node, exp.And):
        return _terms(node.this) + _terms(node.expression)
    return [node]


def _resolve_where(block: Block, top: bool) -> None:
    where = block.tree.args.get("where")
    if where is None:
        return
    resolve = resolver_of(block, "where clause")
    top = top and not block.context.batch
    for term in _terms(where.this):
        if is_membership(term):
            block.where.append(holds(block, resolve, term, top))
            continue
        with_query = term.find(exp.Select) is not None
        if top and with_query and has_parameter(term):
            raise not_maintained("a parameter in a subquery here", term, "it may stand in IN (SELECT …) and EXISTS")
        key = key_term(term, resolve, block.context.mode == "adhoc") if top and not with_query else None
        if key is not None and any(c < block.scope.start for c in columns_of(key.column)):
            key = None
        if key is not None and key.lookup.several and not key.lookup.parameters and _of_whole(block):
            key = None
        if key is not None and (isinstance(key.lookup, Parameter) or all(b.column != key.column for b in block.bound)):
            block.keys.append(key)
            continue
        if top and not with_query and literal_range(term, resolve) and _varying(block, term):
            term, values = as_parameters(term, len(block.literals))
            block.literals += values
        if top and has_parameter(term):
            block.after += after_terms(term, lambda p: replace(resolve, parameter=p))
        else:
            _where_terms(block, conjuncts(call("and", resolve(term))))
    found = None if block.bound else range_key(block.after, dict(enumerate(block.literals)))
    if found is not None:
        block.keys, block.after = [found[0]], found[1]


def _where_terms(block: Block, terms: list[Expr]) -> None:
    """Terms as they are; those with columns of the outer query as what they say of the two."""
    start = block.scope.start
    for term in terms:
        columns = columns_of(term)
        found = correlation(term, start) if columns and min(columns) < start else None
        if found is not None:
            block.correlations.append(found)
        elif columns and max(columns) < start:
            block.given.append(term)
        else:
            block.where.append(term)


def _varying(block: Block, term: exp.Expr) -> bool:
    """Is it a text whose literals may be others the next time?  A LIMIT must be in the order of the range's column: the
    rows beyond are not looked at then."""
    tree, context = block.tree, block.context
    if context.mode != "adhoc" or context.constant or block.outer is not None or _of_whole(block):
        return False
    if any(tree.args.get(n) for n in ("group", "distinct")):
        return False
    if tree.args.get("limit") is not None:
        order = tree.args.get("order")
        first = order.expressions[0].this if order is not None else None
        if not isinstance(first, exp.Column) or first.name.lower() != term.this.name.lower():
            return False
    return tree.find(exp.Placeholder) is None and not any(item.find(exp.AggFunc) for item in tree.expressions)


def _resolve_items(block: Block) -> None:
    resolve = resolver_of(block, "field list", aggregates=True)
    for node in block.tree.expressions:
        if isinstance(node, exp.Star):
            only(node, frozenset(), "SELECT *")
            block.items += [Item(n, c) for n, c in block.scope.star()]
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            block.items += [Item(n, c) for n, c in block.scope.star(node.table)]
        else:
            if isinstance(node, exp.Alias) and len(node.alias) > MAX_ALIAS_CHARS:
                raise name_too_long(node.alias)
            block.items.append(Item(column_name(node), resolve(node)))
    if len(block.items) > MAX_COLUMNS:
        raise too_many_columns(MAX_COLUMNS)


def column_name(node: exp.Expr) -> str:
    """What the column is called: its alias, its name, or the expression as it was written."""
    if isinstance(node, (exp.Alias, exp.Column)):
        return str(node.alias_or_name)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    return str(node.meta.get("text") or snippet(node))


def _position(block: Block, node: exp.Expr, clause: str) -> Expr | None:
    """The select item that a number in GROUP BY or ORDER BY means."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        return None
    number = int(node.this)
    if not 1 <= number <= len(block.items):
        raise unknown_column(str(number), clause)
    return block.items[number - 1].expr


def _resolve_groups(block: Block) -> None:
    clause = block.tree.args.get("group")
    if clause is None:
        return
    only(clause, frozenset({"expressions"}), "GROUP BY")
    resolve = resolver_of(block, "group statement")
    for node in clause.expressions:
        e = _position(block, node, "group statement")
        if e is None and isinstance(node, exp.Column) and not node.table and not block.scope.find(node.name):
            e = block.alias(node.name)
        e = resolve(node) if e is None else e
        if uses_aggregate(e):
            raise SqlError(1056, "42000", f"Can't group on '{snippet(node)}'")
        if e not in block.groups:
            block.groups.append(e)


def _resolve_having(block: Block, top: bool) -> None:
    having = block.tree.args.get("having")
    if having is None:
        return
    grouped = {block.scope.field(g.index).name.lower() for g in block.groups if isinstance(g, Col)}

    def column(name: str, table: str, clause: str) -> Expr:
        known = block.alias(name) if not table and name.lower() not in grouped else None
        return known if known is not None else block.scope.resolve(name, table, clause)

    resolve = resolver_of(block, "having clause", aggregates=True, column=column)
    for term in _terms(having.this):
        if top and not block.context.batch and has_parameter(term):
            block.after_having += after_terms(term, lambda p: replace(resolve, parameter=p))
        else:
            block.having += conjuncts(call("and", resolve(term)))
    if any(map(windows_in, block.having)):
        raise SqlError(3594, "HY000", "You cannot use the alias of an expression containing a window function in "
                                      "HAVING")


def _order_of_view(block: Block) -> list[tuple[Expr, bool]]:
    """SELECT … FROM a view without an order of its own shows the view's, unless it groups the rows."""
    tree, sources = block.tree, block.scope.sources
    grouped = tree.args.get("group") or tree.args.get("distinct") or any(uses_aggregate(i.expr) for i in block.items)
    if block.outer is not None or grouped or len(sources) != 1 or block.having:
        return []
    return [(sources[0].column(at), descending) for at, descending in sources[0].order]


def _resolve_order(block: Block) -> None:
    order = block.tree.args.get("order")
    if order is None:
        block.order = _order_of_view(block)
        return

    def column(name: str, table: str, clause: str) -> Expr:
        known = block.alias(name) if not table else None
        return known if known is not None else block.scope.resolve(name, table, clause)

    resolve = resolver_of(block, "order clause", aggregates=True, column=column)
    for node in order.expressions:
        only(node, frozenset({"this", "desc", "nulls_first"}), "ORDER BY")
        e = _position(block, node.this, "order clause")
        e = resolve(node.this) if e is None else e
        if not isinstance(e, Const):
            block.order.append((e, bool(node.args.get("desc"))))


# ------------------------------------------------------------------ putting it together
def _assemble(block: Block, joined: Joined) -> Query:
    asked = [i.expr for i in block.items] + [e for e, _ in block.order] + block.having
    aggregated = any(map(uses_aggregate, asked + block.after_having))
    if (block.tree.args.get("group") is not None or aggregated) and _parts_needed(block):
        if any(map(windows_in, asked)):
            _check_windows(block, True)
        return _assemble_parts(block, joined, asked + block.after_having)
    grouped = None
    rewrite: Callable[[Expr], Expr]
    if block.tree.args.get("group") is not None or aggregated:
        grouped = group(block.context, block.tree, block.scope, joined, block.groups, _finer(block),
                        asked + block.after_having)
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
    placed = _place_bound(block, rewrite, exprs, names, plan)
    order = _place_order(block, [rewrite(e) for e, _ in block.order], exprs, names, distinct, plan)
    terms = _place_terms([rewrite(t) for t in block.after + block.after_having], exprs, names, plan)
    empty = grouped.empty_row(exprs[: len(block.items)]) if grouped and (placed or block.given) else None
    plan = _projected(plan, exprs, names)
    after = _filtered(Found(plan.fields), terms) if terms else None
    after = after and bound(after, block.literals) if block.literals else after
    if distinct and (terms or _several(block)):
        after = _each_once(_shown(Found(plan.fields) if after is None else after, len(block.items)))
    elif distinct:
        plan = Distinct(plan)
    return Query(plan, len(block.items), _keys(placed), order, *_ends(block), empty, after, bool(block.literals),
                 _correlations(placed))


def _assemble_parts(block: Block, joined: Joined, asked: list[Expr]) -> Query:
    """A grouping whose parts are looked up and then put together."""
    found = regroup(block.context, block.tree, block.scope, joined, block.groups, _finer(block), asked)
    plan: Mir = found.parts.plan
    placed = [b.at(found.parts.places[b.column]) for b in block.bound]
    if len({b.column for b in placed}) < len(placed):
        raise not_maintained("a column that is compared with two parameters here", block.tree)
    terms = [found.parts.expr(t) for t in block.after]
    whole = over(found.whole, _filtered(Found(plan.fields), terms))
    whole = _filtered(whole, [found.expr(t) for t in block.having + block.after_having])
    exprs = [found.expr(i.expr) for i in block.items]
    names = [i.name for i in block.items]
    distinct = block.tree.args.get("distinct") is not None
    order = _place_order(block, [found.expr(e) for e, _ in block.order], exprs, names, distinct, whole)
    after: Mir = Project(whole, tuple(exprs), tuple(names))
    if distinct:
        after = _each_once(after)
    return Query(plan, len(block.items), _keys(placed), order, *_ends(block), None, after,
                 correlations=_correlations(placed))


def _of_whole(block: Block) -> bool:
    """Are there window functions, or, of all rows together, GROUP_CONCAT or an aggregate of DISTINCT?  Parts of these
    cannot be put together after a lookup, so literals of several keys stay conditions of the view."""
    tree = block.tree
    if tree.find(exp.Window) is not None:
        return True
    found = [a for e in tree.expressions for a in e.find_all(exp.AggFunc)] if tree.args.get("group") is None else []
    return any(isinstance(a, exp.GroupConcat) or isinstance(a.this, exp.Distinct) for a in found)


def _check_windows(block: Block, whole: bool) -> None:
    """A window is over the rows of one lookup.  whole: these are one row, of an aggregate without GROUP BY."""
    if _several(block) or block.after or block.after_having:
        raise not_maintained("a window function over the rows of several keys", block.tree,
                             "ask for one key at a time, by `column = ?`")
    if whole and block.bound:
        raise not_maintained("a window function over an aggregate without GROUP BY", block.tree)


def _several(block: Block) -> bool:
    """May one lookup be for several keys?"""
    return any(k.lookup.several for k in block.keys)


def _finer(block: Block) -> list[Expr]:
    """What a grouping must have beside its own columns: keys, and columns of conditions after the lookup."""
    columns = {c.index: c for t in block.after for c in walk(t) if isinstance(c, Col)}
    return list(dict.fromkeys([*(b.column for b in block.bound), *(columns[i] for i in sorted(columns))]))


def _parts_needed(block: Block) -> bool:
    """Can the rows of a lookup be several parts of one group?"""
    several = [k.column for k in block.keys if k.lookup.several]
    several += [c for t in block.after for c in walk(t) if isinstance(c, Col)]
    fixed = block.scope.determined({g.index for g in block.groups if isinstance(g, Col)})
    parts = any(e not in block.groups and not (isinstance(e, Col) and e.index in fixed) for e in several)
    over_nothing = not block.groups and bool(block.bound)  # HAVING must tell a key without rows from rows it drops
    return parts or (over_nothing and bool(block.having or block.after_having))


def _ends(block: Block) -> tuple[exp.Expr | None, exp.Expr | None]:
    limit, offset = (block.tree.args.get(n) for n in ("limit", "offset"))
    return limit and limit.expression, offset and offset.expression


def _place_terms(terms: list[Expr], exprs: list[Expr], names: list[str], plan: Mir) -> list[Expr]:
    """Conditions over the columns of the plan, appended where they are not selected."""

    def column(c: Col) -> Expr:
        if c not in exprs:
            exprs.append(c)
            names.append(plan.fields[c.index].name)
        return Col(c.type, c.nullable, exprs.index(c))

    return [substitute(t, column) for t in terms]


def _filtered(plan: Mir, terms: list[Expr]) -> Mir:
    return Filter(plan, canonical(call("and", *terms))) if terms else plan


def _shown(plan: Mir, width: int) -> Mir:
    """Without hidden columns."""
    fields = plan.fields[:width]
    return Project(plan, tuple(Col(f.type, f.nullable, i) for i, f in enumerate(fields)),
                   tuple(f.name for f in fields))


def _each_once(plan: Mir) -> Mir:
    """DISTINCT, as a grouping by every column."""
    return Aggregate(plan, tuple(range(plan.width)), (), ())


def _place_bound(block: Block, rewrite: Callable[[Expr], Expr], exprs: list[Expr], names: list[str], plan: Mir
                 ) -> list[Key[int] | Correlation[int]]:
    """Keys and correlations with their columns: of the select list, or appended.  A column bound twice is there
    twice."""
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
                raise SqlError(3065, "HY000", "Expression of ORDER BY clause is not in SELECT list; this is "
                                              "incompatible with DISTINCT")
            exprs.append(e)
            names.append(plan.fields[e.index].name if isinstance(e, Col) else f"order{len(out)}")
        out.setdefault(exprs.index(e), descending)
    return tuple(out.items())


def _projected(plan: Mir, exprs: list[Expr], names: list[str]) -> Mir:
    """The columns; the plan itself when these are all of its own, by their names."""
    same = len(exprs) == plan.width and all(
        isinstance(e, Col) and e.index == i and f.name == n
        for i, (e, n, f) in enumerate(zip(exprs, names, plan.fields, strict=False)))
    return plan if same else Project(plan, tuple(exprs), tuple(names))
