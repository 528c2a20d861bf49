"""Translates SELECT without FROM: constants, variables, functions of the session, and expressions of these and of
subqueries.  Call `select_items`.

    SELECT @a + 1, (SELECT COUNT(*) FROM t)     each is computed from inputs: a variable, a query's answer
    SELECT 'x' WHERE NOT EXISTS (SELECT …)      so is the condition

Keeps true: the inputs of an item are read once for each execution, before it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError, unknown_column
from noria.core.errors.codes import NO_TABLES_USED, OPERAND_COLUMNS
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Const, Expr, const
from noria.core.expressions.functions import call, literal, wrong_count
from noria.core.types import BIGINT, BOOL, DOUBLE, TEXT, Field, SqlType
from noria.sql.commands import OutputColumn, Select, SelectItems, Subquery, bound_select
from noria.sql.expressions.clock import SESSION_CLASSES
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.plan_select import block_of, select_of
from noria.sql.query.relations.context import Catalog, Context
from noria.sql.query.relations.limit_offset import count_of
from noria.sql.query.select import check_modifiers, column_name
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import Statement, check_parts, is_row_subquery, is_subquery, quantifier
from noria.sql.text.trees import children

_FUNCTIONS = {"DATABASE": TEXT, "SCHEMA": TEXT, "VERSION": TEXT, "USER": TEXT, "CURRENT_USER": TEXT,
              "CURRENT_ROLE": TEXT, "SESSION_USER": TEXT, "SYSTEM_USER": TEXT,
              "CONNECTION_ID": BIGINT, "LAST_INSERT_ID": BIGINT,
              "ROW_COUNT": BIGINT, "FOUND_ROWS": BIGINT, "UUID": TEXT, "UUID_SHORT": BIGINT, "RAND": DOUBLE}
LOCK_FUNCTIONS = {"GET_LOCK": 2, "RELEASE_LOCK": 1, "RELEASE_ALL_LOCKS": 0, "IS_FREE_LOCK": 1, "IS_USED_LOCK": 1}
"""The functions about the locks of sessions, with their numbers of arguments."""
WAITING_FUNCTIONS = {**LOCK_FUNCTIONS, "SLEEP": 1}
"""Those, and SLEEP: a SELECT without FROM runs them one after the other."""
_CLASSES: dict[type[exp.Expr], str] = {**SESSION_CLASSES, exp.Uuid: "UUID", exp.Rand: "RAND"}
_OF_ROWS = ("with_", "group", "having", "windows", "offset")  # clauses of a SELECT that is planned like others
_CHOICES = (exp.If, exp.Case, exp.Coalesce, exp.And, exp.Or)  # they may evaluate their first operand alone
_INPUT = "input "  # before the number of an input, in place of the number of a parameter

Planner = Callable[[exp.Expr], Select | SelectItems]


def from_nothing(tree: exp.Select) -> bool:
    """Whether the SELECT has no FROM and computes its items by themselves: it neither aggregates nor orders."""
    if tree.args.get("from_") is not None or any(tree.args.get(name) for name in _OF_ROWS):
        return False
    return not any(map(_aggregates, tree.expressions))


def _aggregates(node: exp.Expr) -> bool:
    """Whether an expression aggregates, or is a window function, outside of its subqueries."""
    if isinstance(node, exp.Query):
        return False
    return isinstance(node, exp.AggFunc | exp.Window) or any(map(_aggregates, children(node)))


def select_items(context: Context, tree: exp.Select, plan: Planner | None = None) -> SelectItems:
    """Translate a SELECT without FROM to its items.  plan: plans a subquery; None: there are none."""
    check_parts(tree, frozenset({"expressions", "limit", "where", "distinct", "offset", "hint",
                                  "operation_modifiers"}), "SELECT without FROM")
    check_modifiers(tree)
    where, limit = tree.args.get("where"), tree.args.get("limit")
    if tree.args.get("offset") is not None:
        raise refuse("OFFSET in a SELECT without FROM", tree, "leave it out")
    items = tuple(_item(context, n, plan) for n in tree.expressions)
    condition = None if where is None else _computed(context, "where", where.this, plan, truth=True)
    return SelectItems(items, count_of(context, limit.expression if limit is not None else None), condition)


def items_of(statement: Statement, tree: exp.Select, catalog: Catalog, values: Sequence[Any]) -> SelectItems:
    """Translate a SELECT without FROM, and its subqueries, with the values of the statement's parameters."""
    def plan(query: exp.Expr) -> Select | SelectItems:
        if isinstance(query, exp.Select) and query.args.get("from_") is None:
            return items_of(statement, query, catalog, values)
        select = select_of(replace(statement, parameters=len(values)), query, catalog, list(values))
        return select if select.view is None else bound_select(select, values)

    return select_items(Context(catalog, block_of, "batch", values), tree, plan)


def needs_session(node: exp.Expr) -> bool:
    """Whether the expression has subqueries, variables or functions of the session, of chance or about locks."""
    return (_is_input(node) or _function(node) in WAITING_FUNCTIONS or is_subquery(node)
            or any(map(needs_session, children(node))))


def _item(context: Context, node: exp.Expr, plan: Planner | None) -> OutputColumn:
    name, inner = column_name(node), node.unalias()
    if isinstance(inner, exp.SessionParameter):
        return OutputColumn(Field(name, TEXT), "variable", inner.name.lower(),
                            str(inner.args.get("kind") or "").lower())
    if isinstance(inner, exp.Parameter):
        return OutputColumn(Field(name, TEXT), "user_variable", inner.name.lower())
    function = _function(inner)
    if function in _FUNCTIONS:
        return OutputColumn(Field(name, _FUNCTIONS[function]), "function", function)
    if function in WAITING_FUNCTIONS:
        return OutputColumn(Field(name, BIGINT), "function", function, arguments=_arguments(context, function, inner))
    if isinstance(inner, exp.Star):
        raise SqlError(*NO_TABLES_USED, "No tables used")
    if needs_session(inner):
        return _computed(context, name, inner, plan)
    e = Resolver(_no_column, context.parameter, "field list")(inner)
    return OutputColumn(Field(name, e.type, e.nullable), value=constant(e))


def _function(node: exp.Expr) -> str:
    """The name of a function of the session, or of any function that is only a name; "" for another node."""
    if isinstance(node, exp.Rand) and node.args.get("this") is not None:
        return ""  # a function of its seed
    return _CLASSES.get(type(node)) or (node.name.upper() if isinstance(node, exp.Anonymous) else "")


def _arguments(context: Context, function: str, node: exp.Expr) -> tuple[OutputColumn, ...]:
    """The arguments of a function about locks, or of SLEEP: expressions of constants, variables and functions such as
    DATABASE()."""
    if len(node.expressions) != WAITING_FUNCTIONS[function]:
        raise wrong_count(function)
    found = tuple(_item(context, n, None) for n in node.expressions)
    if any(i.name in WAITING_FUNCTIONS for item in found for i in (item, *item.arguments) if i.kind == "function"):
        raise refuse(f"such a function as an argument of {function}", node, "call them one after the other")
    return found


# ------------------------------------------------------------------ expressions of inputs
def _computed(context: Context, name: str, node: exp.Expr, plan: Planner | None, truth: bool = False) -> OutputColumn:
    """An expression of inputs.  truth: a condition."""
    arguments: list[OutputColumn] = []
    places: dict[int, int] = {}  # of subqueries, by node
    queries: list[Subquery] = []

    def marked(n: exp.Expr, always: bool = True) -> exp.Expr:
        """Replace variables and functions of the session by marks, and note the subqueries.  always: the node is
        evaluated whatever the values of others are."""
        if is_subquery(n):
            places[id(n)] = len(queries)
            queries.append(_planned(n, plan))
            if isinstance(n, exp.Subquery | exp.Exists):
                return n
            n.set("this", marked(n.this, always))
        elif _is_input(n) or _function(n) in WAITING_FUNCTIONS:
            if not (always or _is_input(n)):
                raise refuse(f"{_function(n)} where it may be left out", n, "call it in a column of its own")
            arguments.append(_item(context, n, None))
            return exp.Placeholder(this=f"{_INPUT}{len(arguments) - 1}")
        else:
            for key, value in n.args.items():
                sure = always and (key == "this" or not isinstance(n, _CHOICES))
                if isinstance(value, exp.Expr):
                    n.set(key, marked(value, sure))
                elif isinstance(value, list):
                    n.set(key, [marked(v, sure) if isinstance(v, exp.Expr) else v for v in value])
        return n

    tree = marked(node.copy())

    def compute(values: Sequence[Any]) -> Const:
        def parameter(p: exp.Placeholder) -> Expr:
            number = str(p.this)
            return literal(values[int(number[len(_INPUT):])]) if number.startswith(_INPUT) else context.parameter(p)

        def subquery(r: Resolver, n: exp.Expr) -> Expr:
            query = queries[places[id(n)]]
            answer, type_ = values[len(arguments) + places[id(n)]], _type_of(query)
            if query.how != "values":
                return _const(answer, type_)
            if (quantified := quantifier(n)) is not None:
                every, operand = quantified[1] is exp.All, r(n.this)
                terms = [call(quantified[0], operand, _const(v, type_)) for v in dict.fromkeys(answer)]
                return call("and" if every else "or", literal(every), *terms)
            return call("in", r(n.this), *(_const(v, type_) for v in answer)) if answer else literal(False)

        e = Resolver(_no_column, parameter, "field list", subquery=subquery)(tree)
        e = call("and", e) if truth else e
        return Const(e.type, True, constant(e))

    first = compute([*(None for _ in arguments), *(_nothing(q) for q in queries)])
    return OutputColumn(Field(name, first.type), "computed", arguments=tuple(arguments), queries=tuple(queries),
                        compute=compute)


def _is_input(node: exp.Expr) -> bool:
    return isinstance(node, exp.SessionParameter | exp.Parameter) or _function(node) in _FUNCTIONS


def _planned(node: exp.Expr, plan: Planner | None) -> Subquery:
    """The query of a subquery's node."""
    if plan is None:
        raise refuse("a subquery here", node, "SELECT it by itself")
    if is_row_subquery(node):
        raise refuse("a comparison of a row with a subquery here", node, "compare column by column")
    if isinstance(node, exp.Exists):
        return Subquery(plan(node.this), "exists")
    if isinstance(node, exp.Subquery):
        found = Subquery(plan(node.unnest()), "value")
    else:
        inner = node.args["query"] if isinstance(node, exp.In) else node.expression.this
        found = Subquery(plan(inner.unnest()), "values")
    select = found.select
    if len(select.items if isinstance(select, SelectItems) else select.fields) != 1:
        raise SqlError(*OPERAND_COLUMNS, "Operand should contain 1 column(s)")
    return found


def _nothing(query: Subquery) -> Any:
    """The answer of a query without rows."""
    return () if query.how == "values" else False if query.how == "exists" else None


def _type_of(query: Subquery) -> SqlType:
    if query.how == "exists":
        return BOOL
    select = query.select
    return select.items[0].field.type if isinstance(select, SelectItems) else select.fields[0].type


def _const(value: Any, type_: SqlType) -> Expr:
    return Const(type_, True, None) if value is None else const(value, type_)


def _no_column(name: str, table: str, clause: str) -> Expr:
    raise unknown_column(f"{table}.{name}" if table else name, clause)
