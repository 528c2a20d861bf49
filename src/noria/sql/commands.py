"""The commands that statements become: frozen, with all names resolved and all expressions typed.

Writes are in `core.statements`.  Keeps true: besides the definition of a view, only a `Select` has parameters.  They
are in its lookups, LIMIT, OFFSET and the conditions after the lookup; `bound_select` replaces them by values.

`foreign_key_checks`: as the session has set it.  With False, a table to which a FOREIGN KEY refers may be dropped or
emptied.  A new key may lack its parent, and its rows are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from noria.accounts.statements import Statement as AccountStatement
from noria.core.errors import SqlError
from noria.core.errors.codes import WRONG_ARGUMENTS
from noria.core.expressions.expr import Col, Const, Expr
from noria.core.expressions.functions import call
from noria.core.statements import Delete, Insert, Update
from noria.core.types import Field, TableDef
from noria.plan.after import bound, parameters_of, with_leaf
from noria.plan.batch_nodes import Limit, Sort
from noria.plan.constant_row import GivenRows
from noria.plan.lookups import Lookup, Parameter, is_plain
from noria.plan.mir import Filter, Mir
from noria.plan.view import ViewDef
from noria.sql.expressions.clock import Moment
from noria.sql.session_commands import AlterDatabase as AlterDatabase
from noria.sql.session_commands import Assignment as Assignment
from noria.sql.session_commands import CreateDatabase as CreateDatabase
from noria.sql.session_commands import DeallocatePrepared as DeallocatePrepared
from noria.sql.session_commands import DropDatabase as DropDatabase
from noria.sql.session_commands import ExecutePrepared as ExecutePrepared
from noria.sql.session_commands import FlushHosts as FlushHosts
from noria.sql.session_commands import Kill as Kill
from noria.sql.session_commands import LoadData as LoadData
from noria.sql.session_commands import LockTables as LockTables
from noria.sql.session_commands import NoOp as NoOp
from noria.sql.session_commands import PrepareText as PrepareText
from noria.sql.session_commands import SetVariable as SetVariable
from noria.sql.session_commands import Show as Show
from noria.sql.session_commands import Transaction as Transaction
from noria.sql.session_commands import Use as Use


@dataclass(frozen=True)
class CreateTable:
    table: TableDef
    if_not_exists: bool = False
    text: str = ""
    foreign_key_checks: bool = field(default=True, repr=False)


@dataclass(frozen=True)
class DropTable:
    names: tuple[str, ...]
    if_exists: bool = False
    foreign_key_checks: bool = field(default=True, repr=False)


@dataclass(frozen=True)
class Truncate:
    name: str
    foreign_key_checks: bool = field(default=True, repr=False)


@dataclass(frozen=True)
class RenameTables:
    """RENAME TABLE: pairs (name, new name), applied in order."""

    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class AlterTable:
    """ALTER TABLE.  `was`: the definition for which the change was planned."""

    was: TableDef
    table: TableDef
    foreign_key_checks: bool = field(default=True, repr=False)


@dataclass(frozen=True)
class CreateView:
    """CREATE VIEW.  `materialized`: make its own reader at once, even if another view's reader could serve it."""

    view: ViewDef
    or_replace: bool = False
    text: str = ""
    materialized: bool = False


@dataclass(frozen=True)
class CreatePlaceholderView:
    """CREATE VIEW of a view that is stored as text only (`statements/placeholder_views.py`)."""

    name: str
    text: str
    or_replace: bool = False


@dataclass(frozen=True)
class DropView:
    """DROP VIEW, or DROP FEED (`feeds`)."""

    names: tuple[str, ...]
    if_exists: bool = False
    feeds: bool = False


@dataclass(frozen=True)
class BatchQuery:
    """A SELECT that Spark runs over a snapshot.  `reason`: why no view answers it ("" if one could).  `columns`: the
    fields of its result with their origins; empty: the plan's."""

    plan: Mir
    visible: int
    reason: str = ""
    columns: tuple[Field, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.columns or self.plan.fields[: self.visible]


@dataclass(frozen=True)
class Select:
    """A SELECT.

    `view` answers it by `lookups`, one for each column of view.key.  If no view can, it is None, and Spark runs
    `batch`.  `limit` and `offset`: parameters that replace the view's own.  `instead`: plans the same SELECT with its
    literal ranges as conditions of the view; raises SqlError if that view cannot be maintained.  `columns`: the
    fields of its result with their origins; empty: the view's.  `once`: no other execution is equal (`RAND()`), so
    no view is made for it.
    """

    view: ViewDef | None
    lookups: tuple[Lookup, ...] = ()
    batch: BatchQuery | None = None
    limit: Parameter | None = None
    offset: Parameter | None = None
    instead: Callable[[], Select] | None = field(default=None, compare=False)
    columns: tuple[Field, ...] = ()
    once: bool = False

    @property
    def parameters(self) -> set[int]:
        """The ordinals of the parameters that it uses.  Only for a SELECT that a view answers."""
        assert self.view is not None
        ends = [p.ordinal for p in (self.limit, self.offset) if p is not None]
        return {*ends, *(i for a in self.lookups for i in a.parameters), *parameters_of(self.view.after)}

    def is_plain(self, parameters: int) -> bool:
        """Whether the lookups are exactly this number of parameters, in order."""
        return parameters == len(self.lookups) and is_plain(self.lookups)

    @property
    def fields(self) -> tuple[Field, ...]:
        if self.view is not None:
            return self.columns or self.view.fields
        assert self.batch is not None
        return self.batch.fields


@dataclass(frozen=True)
class LockedTable:
    """A table whose rows a SELECT locks.  `at`: the place of its key among the hidden columns."""

    table: TableDef
    at: int
    exclusive: bool


@dataclass(frozen=True)
class LockingSelect:
    """SELECT … FOR UPDATE or FOR SHARE.

    `select` has the keys of the locked rows behind its first `visible` columns.  `grouped`: the SELECT itself, if it
    groups rows; then `select` has the keys only.  `how`: wait, nowait or skip.
    """

    select: Select
    grouped: Select | None
    locked: tuple[LockedTable, ...]
    visible: int
    how: str = "wait"

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.select.fields[: self.visible] if self.grouped is None else self.grouped.fields


@dataclass(frozen=True)
class CountedSelect:
    """SELECT SQL_CALC_FOUND_ROWS.  `count`: selects the number of rows that `select` would have without LIMIT."""

    select: Select
    count: Select

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.select.fields


Given = Mapping[str, GivenRows]
"""The rows that a statement brings itself, by their names in lower case."""


@dataclass(frozen=True)
class RecursivePart:
    """A recursive query of WITH.  `first` and `further`: plan the SELECTs before and after the UNION, beside the rows
    that are known so far.  `columns`: their names, if they are written."""

    name: str
    columns: tuple[str, ...]
    distinct: bool
    first: Callable[[Given], tuple[Command, ...]]
    further: Callable[[Given], tuple[Command, ...]]


@dataclass(frozen=True)
class Recursive:
    """A statement with WITH RECURSIVE.  `rest`: plans it when the rows of its recursive queries are known."""

    parts: tuple[RecursivePart, ...]
    rest: Callable[[Given], Command]

    @property
    def fields(self) -> tuple[Field, ...]:
        given: dict[str, GivenRows] = {}
        for number, part in enumerate(self.parts):
            found = fields_of(part.first(given)[0])
            names = part.columns or tuple(f.name for f in found)
            given[part.name] = GivenRows(tuple(Field(n, f.type) for n, f in zip(names, found, strict=False)), -number,
                                         ())
        return fields_of(self.rest(given))


@dataclass(frozen=True)
class CreateTableAs:
    """CREATE TABLE … AS SELECT: the table, and the INSERT of the SELECT's rows into it."""

    create: CreateTable
    fill: SelectedWrite


@dataclass(frozen=True)
class SelectInto:
    """SELECT … INTO variables.  command: the SELECT.  names: the variables, in lower case."""

    command: Command
    names: tuple[str, ...]


@dataclass(frozen=True)
class CreateTemporary:
    """CREATE TEMPORARY TABLE.  fill: the INSERT of the rows of AS SELECT."""

    create: CreateTable
    fill: SelectedWrite | None = None


@dataclass(frozen=True)
class DropTemporary:
    """DROP TEMPORARY TABLE."""

    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class WriteTarget:
    """A table whose rows a SELECT has found.  `at`: the place of its primary key among the found columns.

    `assignments`: of an UPDATE; None: the rows are deleted.  In an expression, columns from 0 on are those of the
    table's row, and columns from NEW on are the found ones.
    """

    table: TableDef
    at: int
    assignments: tuple[tuple[int, Expr], ...] | None


@dataclass(frozen=True)
class SelectedWrite:
    """A write of rows that a SELECT finds: INSERT … SELECT, or an UPDATE or DELETE that has joins, subqueries, ORDER BY
    or LIMIT.

    `select`: of an INSERT, perhaps a SELECT without FROM for each row.  `insert`: the INSERT without its rows; None for
    the others, which have `targets`.  `ignore`: rows that break a key or a condition stay as they are.
    """

    select: Select | LockingSelect | tuple[SelectItems, ...]
    insert: Insert | None = None
    targets: tuple[WriteTarget, ...] = ()
    ignore: bool = False

    @property
    def ignores(self) -> bool:
        return self.ignore or (self.insert is not None and self.insert.on_duplicate == "ignore")

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables that it writes."""
        return tuple(t.table.name for t in self.targets) if self.insert is None else (self.insert.table,)


@dataclass(frozen=True)
class Information:
    """A SELECT from information_schema, over the program's own definitions."""

    query: BatchQuery

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.query.fields


def as_batch(select: Select, reason: str = "") -> BatchQuery:
    """Make a query for Spark from a bound SELECT, whether or not a view could answer it.

    Lookups become filters; the view's order and limit become Sort and Limit.  If the answer is empty, the caller must
    add `view.empty_row`, the row of an aggregate over no rows.
    """
    if select.view is None:
        assert select.batch is not None
        return select.batch
    view, plan = select.view, _whole_plan(select, select.view)
    if view.order:
        plan = Sort(plan, view.order)
    if view.limit is not None or view.offset:
        plan = Limit(plan, view.limit, view.offset)
    return BatchQuery(plan, view.visible, reason, select.columns)


def in_one_plan(select: Select) -> Select:
    """The bound SELECT with its lookups and the plan after them in its plan, so that it has no key.  Rows that it drops
    have no effect then: their evaluation errors are dropped, too."""
    view = select.view
    assert view is not None
    whole = replace(view, plan=_whole_plan(select, view), key=(), after=None, ranged=False, asks=None)
    return Select(whole, (), columns=select.columns, once=True)


def _whole_plan(select: Select, view: ViewDef) -> Mir:
    plan = view.plan
    terms = []
    for column, lookup in zip(view.key, select.lookups, strict=True):
        f = plan.fields[column]
        terms.append(lookup.condition(Col(f.type, f.nullable, column)))
    if terms:
        plan = Filter(plan, call("and", *terms))
    return plan if view.after is None else with_leaf(view.after, plan)


@dataclass(frozen=True)
class OutputColumn:
    """One column of a SELECT without FROM.

    `kind` "value" has its value.  Kind "variable" names a system variable (`name` without @@; `scope` "session",
    "global" or "").  Kind "user_variable" names one of the client's.  Kind "function" names a function of the session
    (DATABASE, VERSION, USER, CONNECTION_ID, LAST_INSERT_ID, UUID, …).
    Only functions about locks (GET_LOCK, …) have `arguments`.
    Kind "computed" is an expression of `arguments` and `queries`: `compute` gets their values, in this order.
    """

    field: Field
    kind: Literal["value", "variable", "user_variable", "function", "computed"] = "value"
    name: str = ""
    scope: str = ""
    value: Any = None
    arguments: tuple[OutputColumn, ...] = ()
    queries: tuple[Subquery, ...] = ()
    compute: Callable[[Sequence[Any]], Const] | None = None


@dataclass(frozen=True)
class Subquery:
    """A query within an expression.  `how`: what the expression uses of its answer: the one value, whether it has rows,
    or the values of its column."""

    select: Select | SelectItems
    how: Literal["value", "exists", "values"]


@dataclass(frozen=True)
class SelectItems:
    """SELECT without FROM: one row of these items, or none if `limit` is 0 or `where` is not true."""

    items: tuple[OutputColumn, ...]
    limit: int | None = None
    where: OutputColumn | None = None


@dataclass(frozen=True)
class SessionDependent:
    """A statement that reads the clock, or variables or functions of the session.  `at` returns the command."""

    at: Callable[[Moment], Command]
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Do:
    """DO: a SELECT without FROM whose row nobody wants."""

    command: SelectItems | SessionDependent


@dataclass(frozen=True)
class Explain:
    """EXPLAIN.  `analyze`: run the statement and report its cost.  `text`: the explained statement."""

    command: Command
    analyze: bool = False
    text: str = field(default="", compare=False)


Command = (CreateTable | AlterTable | RenameTables | Truncate | DropTable | CreateView | CreatePlaceholderView
           | DropView | Select | CountedSelect | LockingSelect | SessionDependent | SelectItems | Do | Information
           | Explain | Show | SetVariable | Use | PrepareText | ExecutePrepared | DeallocatePrepared
           | CreateDatabase | AlterDatabase | DropDatabase | Transaction | Kill | FlushHosts | NoOp | LockTables
           | Insert | Update | Delete | SelectedWrite | CreateTableAs | Recursive
           | CreateTemporary | DropTemporary | SelectInto | AccountStatement | LoadData)


CHECKED_KEYS = (CreateTable, DropTable, Truncate, AlterTable, DropDatabase)


def tables_changed(command: Command) -> tuple[str, ...]:
    """The names of the tables that the command redefines, empties or drops."""
    if isinstance(command, AlterTable):
        return (command.was.name,)
    if isinstance(command, Truncate):
        return (command.name,)
    if isinstance(command, RenameTables):
        return tuple(old for old, _ in command.names)
    return command.names if isinstance(command, DropTable) else ()


@dataclass(frozen=True)
class PlannedStatement:
    """A prepared statement with `parameters` question marks.

    `command` has its result columns.  Its parameters stay parameters, or are NULL if each execution plans anew.
    `binder` makes the command with values.
    """

    command: Command
    parameters: int
    binder: Callable[[Sequence[Any]], Command]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the result; empty for a statement without one."""
        return fields_of(self.command)


def fields_of(command: Command) -> tuple[Field, ...]:
    """The columns of the command's result; empty for a command without one."""
    if isinstance(command, Select | CountedSelect | LockingSelect | SessionDependent | Information | Recursive):
        return command.fields
    return tuple(i.field for i in command.items) if isinstance(command, SelectItems) else ()


def bound_select(select: Select, values: Sequence[Any]) -> Select:
    """Bind the values of a SELECT's parameters.  Raises error 1210 for a LIMIT or OFFSET that is not a row count."""
    lookups = tuple([a.bind(values) for a in select.lookups])
    view = select.view
    assert view is not None
    if view.after is not None:
        view = replace(view, after=bound(view.after, values))
    if select.limit is not None:
        view = replace(view, limit=_count(values[select.limit.ordinal]))
    if select.offset is not None:
        view = replace(view, offset=_count(values[select.offset.ordinal]))
    return Select(view, lookups, select.batch, columns=select.columns, once=select.once)


def _count(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if number < 0:
        raise SqlError(*WRONG_ARGUMENTS, f"Incorrect arguments to LIMIT: '{value}' is no row count")
    return number
