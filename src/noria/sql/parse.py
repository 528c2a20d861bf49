"""The entry to the language: `parse` a text to commands, `prepare` a statement with parameters, `bind` its values.

Keeps true: a text that is not understood completely raises an SqlError that says what and where.  Binding never
parses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from noria.core.errors import PlaceholderViewError, SqlError, not_supported, parse_error
from noria.core.errors.codes import EMPTY_QUERY, WRONG_ARGUMENTS
from noria.sql.commands import (
    Command,
    CountedSelect,
    CreatePlaceholderView,
    CreateTable,
    CreateTableAs,
    CreateTemporary,
    CreateView,
    Do,
    DropTable,
    DropTemporary,
    Explain,
    Given,
    LockingSelect,
    NoOp,
    PlannedStatement,
    Select,
    SelectedWrite,
    SelectInto,
    SelectItems,
    SessionDependent,
    bound_select,
)
from noria.sql.expressions import chance, clock
from noria.sql.expressions.clock import SOME_MOMENT, Moment
from noria.sql.query import found_rows, recursive
from noria.sql.query.locking import locking, locking_derived
from noria.sql.query.plan_select import select_of
from noria.sql.query.relations import lateral
from noria.sql.query.relations.context import Catalog, GivenCatalog
from noria.sql.statements import (
    alterations,
    definitions,
    information,
    placeholder_views,
    session,
)
from noria.sql.statements.qualified import check_parts, check_stored, in_stored, is_plain, qualify
from noria.sql.statements.without_from import from_nothing, items_of
from noria.sql.statements.writing import selected_writes, table_copies, writes
from noria.sql.text import literal_rows
from noria.sql.text.databases import STORED, Names
from noria.sql.text.refusals import refuse
from noria.sql.text.select_into import without_into
from noria.sql.text.shape import split
from noria.sql.text.syntax import Statement, parse_tokens, snippet, statements_of, tokenize, too_deep
from noria.sql.text.trees import nodes as nodes_of

Binder = Callable[[Sequence[Any]], Command]


def parse(text: str, catalog: Catalog, complete: bool = False, names: Names = STORED) -> list[Command]:
    """Return the commands of a text, which may hold several statements.  Parameters stay parameters.

    `complete`: only CREATE VIEW and EXPLAIN may have parameters; others raise a syntax error.  `names`: the database in
    which the text is read.
    """
    quick = literal_rows.insert(text, lambda head: prepare(head, catalog, names))
    if quick is not None:
        return [quick]
    statements = statements_of(tokenize(text))
    if not statements:
        return [_nothing(text)]
    planned = [_plan(tokens, text, catalog, names) for tokens in statements]
    for p in planned:
        if complete and p.parameters and not isinstance(p.command, CreateView | CreatePlaceholderView | Explain):
            raise parse_error(f"{p.parameters} parameters (?) without values: prepare the statement, or give values")
    return [p.command for p in planned]


def _nothing(text: str) -> NoOp:
    """The command of a text of comments only, as clients and dumps send.  Raises error 1065 for an empty text."""
    if not text.strip(" \t\r\n;"):
        raise SqlError(*EMPTY_QUERY, "Query was empty")
    return NoOp("comment")


def prepare(text: str, catalog: Catalog, names: Names = STORED) -> PlannedStatement:
    """Plan one statement; `bind` sets the values of its parameters.  Raises SqlError for several statements."""
    statements = statements_of(tokenize(text))
    if len(statements) != 1:
        if not statements:
            raise SqlError(*EMPTY_QUERY, "Query was empty")
        raise parse_error("a prepared text holds one statement")
    return _plan(statements[0], text, catalog, names)


def bind(prepared: PlannedStatement, values: Sequence[Any]) -> Command:
    """Return the command with these values.  Raises error 1210 if their number is wrong."""
    if len(values) != prepared.parameters:
        raise SqlError(*WRONG_ARGUMENTS, f"Incorrect arguments to EXECUTE: {len(values)} values for "
                                         f"{prepared.parameters} parameters")
    try:
        return prepared.binder(values)
    except RecursionError:
        raise too_deep() from None


def _plan(tokens: list[Token], text: str, catalog: Catalog, names: Names) -> PlannedStatement:
    try:
        return _plan_statement(tokens, text, catalog, names)
    except RecursionError:
        raise too_deep() from None


def _plan_statement(tokens: list[Token], text: str, catalog: Catalog, names: Names) -> PlannedStatement:
    said = session.command(tokens, text, names)
    if said is not None:
        return PlannedStatement(said, 0, lambda values: said)
    word = tokens[0].text.upper()
    if word in ("EXPLAIN", "DESCRIBE", "DESC"):
        rest, analyze = _explained(tokens), _analyzes(tokens)
        inner, of = _plan(rest, text, catalog, names), text[rest[0].start:]
        return PlannedStatement(Explain(_unlocked(inner.command), analyze, of), inner.parameters,
                        lambda values: Explain(_unlocked(inner.binder(values)), analyze, of))
    if word == "DO" and len(tokens) > 1:
        return _done(tokens, text, catalog)
    tokens, variables = without_into(tokens)
    if variables:
        into = _plan_statement(tokens, text, catalog, names)
        return PlannedStatement(SelectInto(into.command, variables), into.parameters,
                                lambda values: SelectInto(into.binder(values), variables))
    statement = replace(parse_tokens(tokens, text), any_of_group=names.any_of_group)
    check_parts(statement.nodes)
    if isinstance(statement.tree, _SELECTS) and information.reads_information_schema(statement.nodes):
        return _information(statement, names)
    if _makes_view(statement.tree) and names is not STORED:
        check_stored(tokens)
        if not is_plain(statement.nodes, names):
            stored = in_stored(tokens, text, statement, names)  # a view means the same in every session
            return _plan(tokenize(stored), stored, catalog, STORED)
    qualify(statement, names)
    if any(isinstance(n, exp.Lateral) for n in statement.nodes) and lateral.joined(statement.tree):
        statement = replace(statement, nodes=nodes_of(statement.tree))
    if names.zone and not _makes_view(statement.tree):
        tree = clock.in_zone(statement.tree, names.zone)
        statement = replace(statement, tree=tree, nodes=nodes_of(tree))
    command, binder = _command(statement, catalog, names)
    return PlannedStatement(command, statement.parameters, binder)


def _done(tokens: list[Token], text: str, catalog: Catalog) -> PlannedStatement:
    """DO expression, …: a SELECT of these without FROM."""
    do = tokens[0]
    select = Token(TokenType.SELECT, do.text, do.line, do.col, do.start, do.end)
    statement = parse_tokens([select, *tokens[1:]], text)
    tree = statement.tree
    if not isinstance(tree, exp.Select) or any(value for name, value in tree.args.items() if name != "expressions"):
        raise parse_error("DO takes expressions only, without FROM or other clauses")
    command, binder = (_of_session if _reads_session(statement) else _select)(statement, tree, catalog)
    return PlannedStatement(_do(command), statement.parameters, lambda values: _do(binder(values)))


def _do(command: Command) -> Command:
    assert isinstance(command, SelectItems | SessionDependent)
    return Do(command)


def _unlocked(command: Command) -> Command:
    """The SELECT without its locks and its count, which do not change how it is answered."""
    if isinstance(command, CountedSelect):
        return command.select
    if not isinstance(command, LockingSelect):
        return command
    return command.grouped or command.select


def _makes_view(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Create) and tree.kind == "VIEW"


def _analyzes(tokens: list[Token]) -> bool:
    """Whether the statement is EXPLAIN ANALYZE."""
    return any(t.text.upper() == "ANALYZE" for t in tokens[1:-1][:2])


def _explained(tokens: list[Token]) -> list[Token]:
    """The tokens of the statement after EXPLAIN [EXTENDED | PARTITIONS | ANALYZE] [FORMAT = …]."""
    rest = tokens[1:]
    while rest and rest[0].text.upper() in ("EXTENDED", "PARTITIONS", "ANALYZE"):
        rest = rest[1:]
    if rest and rest[0].text.upper() == "FORMAT":
        form = rest[2].text.upper() if len(rest) > 2 else ""
        if form not in ("TRADITIONAL", "TREE", "DEFAULT"):
            raise not_supported(f"EXPLAIN FORMAT={form}", "leave FORMAT out")
        rest = rest[3:]
    if not rest:
        raise parse_error("EXPLAIN of nothing")
    return rest


def _command(statement: Statement, catalog: Catalog, names: Names) -> tuple[Command, Binder]:
    tree = statement.tree
    if any(isinstance(n, exp.With) and n.args.get("recursive") for n in statement.nodes):
        recursive.without_word(tree)
        if recursive.clause_of(tree) is not None:
            return _recursive(statement, tree, catalog, names)
    if isinstance(tree, _SELECTS):
        return (_of_session if _reads_session(statement) else _select)(statement, tree.unnest(), catalog)
    if isinstance(tree, exp.Insert | exp.Update | exp.Delete):
        selected = statement.ignore or selected_writes.needs_select(tree)
        nodes = statement.nodes
        if clock.reads_session(nodes) or chance.reads_chance(nodes) or (selected and clock.reads_clock(nodes)):
            return _of_session(statement, tree, catalog)
        return _writing(statement, tree, catalog)
    if isinstance(tree, exp.TruncateTable):
        return _fixed(writes.truncate(tree, catalog))
    if isinstance(tree, exp.Alter):
        return _fixed(alterations.alter(tree, catalog))
    if isinstance(tree, exp.Create) and tree.kind == "INDEX":
        return _fixed(alterations.create_index(tree, catalog))
    if isinstance(tree, exp.Drop) and tree.kind == "INDEX":
        return _fixed(alterations.drop_index(tree, catalog))
    if statement.temporary:
        return _fixed(_temporary(statement, tree, catalog, names))
    if isinstance(tree, exp.Create) and table_copies.is_copy(tree):
        return _fixed(table_copies.create(statement, tree, catalog, names))
    if isinstance(tree, exp.Create):
        return _fixed(definitions.create(statement, tree, catalog, names))
    if isinstance(tree, exp.Drop):
        return _fixed(definitions.drop(statement, tree))
    if isinstance(tree, exp.Condition):  # a bare name or expression, which sqlglot parses as a statement
        raise parse_error(f"near '{snippet(tree)}'")
    raise not_supported(f"this statement: {snippet(tree)}")


def _temporary(statement: Statement, tree: exp.Expr, catalog: Catalog, names: Names) -> Command:
    """CREATE and DROP TEMPORARY TABLE."""
    if isinstance(tree, exp.Drop):
        dropped = definitions.drop(statement, tree)
        assert isinstance(dropped, DropTable)
        return DropTemporary(dropped.names, dropped.if_exists)
    assert isinstance(tree, exp.Create)
    made = (table_copies.create if table_copies.is_copy(tree) else definitions.create)(statement, tree, catalog, names)
    if isinstance(made, CreateTableAs):
        return CreateTemporary(made.create, made.fill)
    assert isinstance(made, CreateTable)
    return CreateTemporary(made)


def _recursive(statement: Statement, tree: exp.Expr, catalog: Catalog, names: Names) -> tuple[Command, Binder]:
    """The command of a statement with WITH RECURSIVE."""
    def plan(part: exp.Expr, given: Given) -> Command:
        alone = replace(statement, tree=part, nodes=nodes_of(part), parameters=0)
        return _command(alone, GivenCatalog(catalog, given), names)[0]

    def binder(values: Sequence[Any]) -> Command:
        return recursive.recursive(tree, values, plan)

    return binder([None] * statement.parameters), binder


_SELECTS = (exp.Select, exp.SetOperation, exp.Subquery)


def _information(statement: Statement, names: Names) -> PlannedStatement:
    tree, nodes = statement.tree.unnest(), statement.nodes
    return PlannedStatement(information.select(tree, nodes, None, names), statement.parameters,
                    lambda values: information.select(tree, nodes, values, names))


def _fixed(command: Command) -> tuple[Command, Binder]:
    return command, lambda values: command


def _write(binder: Binder, statement: Statement) -> tuple[Command, Binder]:
    """The command of a write has NULL for each parameter until it is bound."""
    return binder([None] * statement.parameters), binder


def _writing(statement: Statement, tree: exp.Expr, catalog: Catalog) -> tuple[Command, Binder]:
    """The command of an INSERT, UPDATE or DELETE."""
    if statement.ignore or selected_writes.needs_select(tree):
        return selected_writes.translate(statement, tree, catalog)
    if isinstance(tree, exp.Insert):
        return _write(writes.insert(statement, tree, catalog), statement)
    if isinstance(tree, exp.Update):
        return _write(writes.update(tree, catalog), statement)
    assert isinstance(tree, exp.Delete)
    return _write(writes.delete(tree, catalog), statement)


def _reads_session(statement: Statement) -> bool:
    """Whether each execution plans the SELECT anew, with values of its session."""
    if clock.reads_clock(statement.nodes) or chance.reads_chance(statement.nodes):
        return True
    return clock.reads_session(statement.nodes) and not _is_items(statement, statement.tree.unnest())


def _is_items(statement: Statement, tree: exp.Expr) -> bool:
    """Whether the statement is a SELECT without FROM and without subqueries, which reads its session by itself."""
    return isinstance(tree, exp.Select) and from_nothing(tree) and not any(
        isinstance(n, exp.Query) and n is not tree for n in statement.nodes)


def _of_session(statement: Statement, tree: exp.Expr, catalog: Catalog) -> tuple[Command, Binder]:
    """The command of a statement that reads the clock or its session: each execution plans it with their values."""
    plan = _select if isinstance(tree, _SELECTS) else _writing
    session = not _is_items(statement, tree)
    once = chance.reads_chance(statement.nodes)

    def planned(moment: Moment) -> tuple[Command, Binder, list[Any]]:
        now, more = clock.at(tree, statement.parameters, moment, session)
        chance.seeded(now, lambda: float(moment.value("function", "RAND", "") or 0))
        command, binder = plan(replace(statement, parameters=statement.parameters + len(more)), now, catalog)
        return command, binder, more

    def bound(values: Sequence[Any]) -> Command:
        def at(moment: Moment) -> Command:
            _, binder, more = planned(moment)
            command = binder([*values, *more])
            return _once(command) if once else command

        return SessionDependent(at, fields)

    first = planned(SOME_MOMENT)[0]
    fields = PlannedStatement(first, 0, lambda values: first).fields
    return bound([None] * statement.parameters), bound


def _once(command: Command) -> Command:
    """The command whose SELECTs no view answers, because no other execution has the same numbers of chance."""
    if isinstance(command, Select):
        return replace(command, once=True)
    if isinstance(command, CountedSelect):
        return replace(command, select=replace(command.select, once=True))
    if isinstance(command, SelectedWrite) and isinstance(command.select, Select):
        return replace(command, select=replace(command.select, once=True))
    return command


def _select(statement: Statement, tree: exp.Expr, catalog: Catalog) -> tuple[Command, Binder]:
    if isinstance(tree, exp.Select) and found_rows.counts(tree):
        return _counted(statement, tree, catalog)
    if isinstance(tree, exp.Select) and (tree.args.get("locks") or locking_derived(tree) is not None):
        return locking(tree, catalog, lambda bare: _select(statement, bare, catalog))
    if isinstance(tree, exp.Select) and from_nothing(tree):
        def items(values: Sequence[Any]) -> SelectItems:
            return items_of(statement, tree, catalog, values)

        return items([None] * statement.parameters), items
    try:
        select = select_of(statement, tree, catalog)
    except PlaceholderViewError as e:
        found = placeholder_views.read(e.text, statement)
        if found is None:
            raise
        return _fixed(found)
    if select.view is None:
        if not statement.parameters:
            return _fixed(select)
        return select, lambda values: _bound(select_of(statement, tree, catalog, list(values)), values)
    if not statement.parameters:
        return _fixed(select)
    return select, partial(bound_select, select)


def _counted(statement: Statement, tree: exp.Select, catalog: Catalog) -> tuple[Command, Binder]:
    """SELECT SQL_CALC_FOUND_ROWS."""
    if tree.args.get("locks") or locking_derived(tree) is not None:
        raise refuse("SQL_CALC_FOUND_ROWS with FOR UPDATE or FOR SHARE", tree, "leave one of them out")
    return found_rows.counted(tree, lambda bare: _select(statement, bare, catalog), lambda count, parameters: _select(
        replace(statement, parameters=parameters), count, catalog))


def _bound(select: Select, values: Sequence[Any]) -> Select:
    return select if select.view is None else bound_select(select, values)


__all__ = ["Catalog", "Command", "PlannedStatement", "Select", "bind", "parse", "prepare", "split"]
