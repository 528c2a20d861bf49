"""SELECT … FOR UPDATE and FOR SHARE: which rows a SELECT locks, as a query of their keys.

    no grouping    the SELECT itself, with the keys of the locked tables as hidden columns behind its own
    grouping       the SELECT as it is, and a second one of the keys of all rows that it groups
    FROM (SELECT … FOR UPDATE) AS t    the SELECT as it is, and the derived table with the keys

Rows of other subqueries are not locked, as in MySQL, and no gaps are: a SELECT locks the rows that it has found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import UNRESOLVED_TABLE_LOCK
from noria.core.types import TableDef
from noria.sql.commands import Command, LockedTable, LockingSelect, Select
from noria.sql.query.relations.context import Catalog, GivenCatalog
from noria.sql.text.trees import children

Planned = tuple[Command, Callable[[Sequence[Any]], Command]]
_GROUPS = ("group", "having", "distinct")


def locking_derived(tree: exp.Select) -> exp.Select | None:
    """The only relation of FROM, if it is a derived table with locking clauses and the SELECT itself has none."""
    sources = _sources(tree)
    inner = sources[0].this if len(sources) == 1 and isinstance(sources[0], exp.Subquery) else None
    return inner if isinstance(inner, exp.Select) and inner.args.get("locks") and not tree.args.get("locks") else None


def locking(tree: exp.Select, catalog: Catalog, plan: Callable[[exp.Select], Planned]) -> Planned:
    """Plan a SELECT with locking clauses, or with a derived table that has them.  plan: plans a SELECT without them."""
    whole, bare = tree.copy(), tree.copy()
    derived = locking_derived(whole)
    if derived is not None:
        tree = derived.copy()
        derived.set("locks", None)
        bare = derived.copy()
    locks = tree.args["locks"]
    whole.set("locks", None)
    bare.set("locks", None)
    if any(isinstance(s, exp.Table) and catalog.table(s.name) is None for s in _sources(tree)):
        plan(bare)  # an unknown table is its error
    wanted = _tables(tree, locks, catalog)
    if not wanted:
        return plan(whole)
    groups = any(tree.args.get(name) for name in _GROUPS) or _aggregates(tree)
    waits = {lock.args.get("wait") for lock in locks}
    if len(waits) > 1:
        raise not_supported("locking clauses of one SELECT that wait in different ways", "use one of them for all")
    (wait,) = waits
    if (groups or derived is not None) and wait is False:
        raise not_supported("SKIP LOCKED with GROUP BY, DISTINCT, HAVING or an aggregate, or in a derived table",
                            "select the rows themselves")
    keys = bare.copy()
    if groups:
        for name in (*_GROUPS, "order", "limit", "offset"):
            keys.set(name, None)
        keys.set("expressions", [])
    locked: list[LockedTable] = []
    at = 0
    for alias, table, exclusive in wanted:
        if not table.primary_key:
            raise not_supported(f"FOR UPDATE of '{table.name}', a table without a primary key", "give it one")
        for column in table.primary_key:
            keys.append("expressions", exp.alias_(exp.column(
                exp.to_identifier(table.columns[column].name, quoted=True),
                exp.to_identifier(alias, quoted=True)), f"lock {at + len(locked)}", quoted=True))
        locked.append(LockedTable(table, at, exclusive))
        at += len(table.primary_key)
    how = {None: "wait", True: "nowait", False: "skip"}[wait]

    def made(select: Command, grouped: Command | None) -> Command:
        if not isinstance(select, Select) or select.view is None or (
                grouped is not None and (not isinstance(grouped, Select) or grouped.view is None)):
            raise not_supported("FOR UPDATE in a SELECT that Spark answers", "lock the rows by a simpler SELECT first")
        assert grouped is None or isinstance(grouped, Select)
        return LockingSelect(select, grouped, tuple(locked), select.view.visible - at, how)

    command, binder = plan(keys)
    if groups or derived is not None:
        first, first_binder = plan(whole)
        return made(command, first), lambda values: made(binder(values), first_binder(values))
    return made(command, None), lambda values: made(binder(values), None)


def _tables(tree: exp.Select, locks: list[exp.Lock], catalog: Catalog) -> list[tuple[str, TableDef, bool]]:
    """The tables whose rows are locked: alias, table, exclusively."""
    sources = {s.alias_or_name: s for s in _sources(tree)}
    names: dict[str, bool] = {}
    if not sources:
        return []
    for lock in locks:
        of = [t.alias_or_name.rsplit(".", 1)[-1] for t in lock.expressions]
        exclusive = bool(lock.args["update"])
        for name in of or [n.rsplit(".", 1)[-1] for n, s in sources.items() if isinstance(s, exp.Table)]:
            names[name.lower()] = exclusive
    found = []
    for alias, source in sources.items():
        exclusive_ = names.pop(alias.rsplit(".", 1)[-1].lower(), None)
        if exclusive_ is None:
            continue
        if isinstance(source, exp.Table) and isinstance(catalog, GivenCatalog) and catalog.given(source.name):
            continue  # a temporary table, which nobody else reads
        table = catalog.table(source.name) if isinstance(source, exp.Table) else None
        if table is None:
            raise not_supported(f"FOR UPDATE of '{alias}', which is no table", "name the tables: FOR UPDATE OF …")
        found.append((alias, table, exclusive_))
    if names:
        raise SqlError(*UNRESOLVED_TABLE_LOCK, f"Unresolved table name '{next(iter(names))}' in locking clause.")
    return found


def _sources(tree: exp.Select) -> list[exp.Expr]:
    """What FROM names: tables, views and subqueries."""
    from_ = tree.args.get("from_")
    return [] if from_ is None else [from_.this, *(j.this for j in tree.args.get("joins") or ())]


def _aggregates(tree: exp.Select) -> bool:
    """Whether the SELECT itself, not a subquery, has an aggregate or a window."""
    def within(node: exp.Expr) -> bool:
        if isinstance(node, exp.Query):
            return False
        return isinstance(node, exp.AggFunc | exp.Window) or any(within(c) for c in children(node))

    return any(within(item) for item in tree.expressions)
