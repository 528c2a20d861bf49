"""Turns the names of a parsed statement into the catalog's (`text/databases.py`).

    in shop:   SELECT t.a, noria.u.b FROM t, noria.u    →   SELECT t.a, u.b FROM `shop.t` AS t, u

A table without an alias keeps its own name for its columns.  If two tables of a FROM have the same name, each is called
by the catalog's name instead: only `database.table.column` refers to it.

Keeps true: after `qualify`, no table and no column has a database.  A name of WITH stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from noria.core.errors import SqlError, ambiguous_column, not_supported, unknown_column
from noria.core.errors.codes import PARSE_ERROR
from noria.core.identifiers import quote_identifier
from noria.sql.text.comments import opened
from noria.sql.text.databases import HOME, STORED, Names
from noria.sql.text.syntax import CONCAT_SIGN, LIKE_SIGN, Statement, parse_tokens, tokenize

_CALLED = (exp.From, exp.Join, exp.Subquery, exp.Update, exp.Delete)  # parents of a table that columns refer to
_BLOCKS = (exp.Select, exp.Update, exp.Delete, exp.Insert)


def check_parts(nodes: Iterable[exp.Expr]) -> None:
    """Raise a syntax error for a table like `..t`, for which sqlglot reads an empty database."""
    for node in nodes:
        if isinstance(node, exp.Table) and any(node.args.get(part) == "" for part in ("catalog", "db")):
            raise SqlError(*PARSE_ERROR, "You have an error in your SQL syntax: a name lacks a part, near "
                                         f"'..{node.name}'")


def is_plain(nodes: Iterable[exp.Expr], names: Names) -> bool:
    """Whether all names are the catalog's already.  Raises a syntax error for a name of more than two parts before its
    column."""
    plain = names.is_home
    for node in nodes:
        if isinstance(node, exp.Table):
            plain = plain and not node.args.get("db") and "." not in node.name
        elif not isinstance(node, exp.Column) or not node.args.get("db"):
            continue
        else:
            plain = False
        if node.args.get("catalog"):
            raise SqlError(*PARSE_ERROR, "You have an error in your SQL syntax: a name of more than two parts, near "
                                         f"'{node.sql(dialect='mysql')}'")
    return plain


# ------------------------------------------------------------------ in a tree
@dataclass
class _Place:
    """A table of FROM.  database: folded.  name: its alias, or its own name.  shown: the name that columns use."""

    node: exp.Table
    database: str
    name: str
    shown: str
    internal: str
    aliased: bool


def qualify(statement: Statement, names: Names) -> None:
    """Give each table and each column of the tree its name in the catalog.  Raises errors 1046, 1049 and 1054."""
    if is_plain(statement.nodes, names):
        return
    blocks: dict[int, list[_Place]] = {}
    for node in list(named_tables(statement)):
        place = _placed(node, names)
        if isinstance(node.parent, _CALLED) and node.arg_key != "tables":
            blocks.setdefault(id(_block(node)), []).append(place)
        elif isinstance(node.parent, exp.Schema | exp.Insert) and isinstance(_block(node), exp.Insert):
            blocks.setdefault(id(_block(node)), []).append(replace(place, aliased=True))
    for places in blocks.values():
        _call(places)
    for column in [n for n in statement.nodes if isinstance(n, exp.Column) and n.table]:
        if column.args.get("db"):
            _requalify(column, blocks)
        elif not (isinstance(column.this, exp.Star) and _star_of_each(column, blocks)):
            _refuse_if_ambiguous(column, blocks)


def named_tables(statement: Statement) -> Iterator[exp.Table]:
    """The nodes that name a table or view of the catalog."""
    for node in statement.nodes:
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            continue
        part = isinstance(node.parent, exp.Drop) and node.parent.kind not in ("TABLE", "VIEW")  # an index, a CHECK, …
        bare = not node.args.get("db")
        if not (part or (bare and (_is_dual(node) or _is_of_with(node)))):
            yield node


def _is_dual(node: exp.Table) -> bool:
    return isinstance(node.parent, exp.From) and not node.this.quoted and node.name.lower() == "dual"


def _is_of_with(node: exp.Table) -> bool:
    """Whether a query of WITH has this name here: each of them sees the ones before it."""
    name, above = node.name.lower(), node.parent
    below: exp.Expr = node
    own: exp.Expr | None = None  # the query of WITH around the table
    while above is not None:
        if isinstance(above, exp.CTE):
            own = above
        clause = above if isinstance(above, exp.With) else above.args.get("with_")
        if clause is not None and clause is not below:
            for cte in clause.expressions:
                if cte is own and not clause.args.get("recursive"):
                    break
                if cte.alias.lower() == name:
                    return True
                if cte is own:
                    break
        below, above = above, above.parent
    return False


def _placed(node: exp.Table, names: Names) -> _Place:
    """Rename the table; return how it was written."""
    database, name = node.args["db"].name if node.args.get("db") else "", node.name
    internal = names.internal(database, name)
    of = names.checked(database) if database else names.current
    node.set("this", exp.to_identifier(internal, quoted=True))
    node.set("db", None)
    node.meta["shown"], node.meta["database"] = name, of
    called = node.alias or name
    return _Place(node, of.lower(), called, called, internal, bool(node.alias))


def _block(node: exp.Expr) -> exp.Expr | None:
    above = node.parent
    while above is not None and not isinstance(above, _BLOCKS):
        above = above.parent
    return above


def _call(places: Sequence[_Place]) -> None:
    """Give each table without an alias the name by which columns refer to it."""
    for place in places:
        if place.aliased:
            continue
        same = [p for p in places if p.name.lower() == place.name.lower() and not p.aliased]
        if any(p.internal.lower() != place.internal.lower() for p in same):
            place.shown = f"{place.database}.{place.name}"
        if place.shown != place.internal:
            place.node.set("alias", exp.TableAlias(this=exp.to_identifier(place.shown, quoted=True)))


def _requalify(column: exp.Column, blocks: dict[int, list[_Place]]) -> None:
    """Let a column refer to its table without the database."""
    database, table = column.args["db"].name, column.table
    of = database.lower()
    block = _block(column)
    while block is not None:
        for place in blocks.get(id(block), ()):
            if place.database == of and place.name.lower() == table.lower():
                column.set("table", exp.to_identifier(place.shown, quoted=True))
                column.set("db", None)
                return
        block = _block(block)
    raise unknown_column(f"{database}.{table}.{column.name}", "field list")


def _star_of_each(column: exp.Column, blocks: dict[int, list[_Place]]) -> bool:
    """Replace t.* by the columns of each table of this name, as MySQL does.  False if there is one."""
    block = _block(column)
    found = [p for p in blocks.get(id(block), ()) if p.name.lower() == column.table.lower() and p.shown != p.name]
    if not found or not isinstance(column.parent, exp.Select):
        return False
    items = column.parent.expressions
    at = next(i for i, item in enumerate(items) if item is column)
    each = [exp.Column(this=exp.Star(), table=exp.to_identifier(p.shown, quoted=True)) for p in found]
    column.parent.set("expressions", [*items[:at], *each, *items[at + 1 :]])
    return True


def _refuse_if_ambiguous(column: exp.Column, blocks: dict[int, list[_Place]]) -> None:
    """Raise error 1052 for a column of a table whose name two databases have in one FROM."""
    block = _block(column)
    while block is not None:
        found = [p for p in blocks.get(id(block), ()) if p.name.lower() == column.table.lower()]
        if found:
            if any(p.shown != p.name for p in found):
                raise ambiguous_column(f"{column.table}.{column.name}", "field list")
            return
        block = _block(block)


# ------------------------------------------------------------ in a text
def check_stored(tokens: Sequence[Token]) -> None:
    """Raise SqlError 1235 for a CREATE VIEW with a sign that stands for a session's dialect (`sql_modes.py`)."""
    for token in tokens:
        if token.text == LIKE_SIGN and token.token_type is TokenType.SOUNDS_LIKE:
            raise not_supported("LIKE in a view in a session with NO_BACKSLASH_ESCAPES",
                                "create the view without that mode")
        if token.text == CONCAT_SIGN and token.token_type is TokenType.DOTCARET:
            raise not_supported("|| in a definition in a session with PIPES_AS_CONCAT", "write CONCAT(…)")


def in_stored(tokens: Sequence[Token], text: str, statement: Statement, names: Names) -> str:
    """The text of a CREATE VIEW as it is stored: each table outside of `noria` with its database."""
    return _written(tokens, text, statement, names, HOME)


def shown_in(text: str, namespace: str) -> str:
    """A stored CREATE VIEW as sessions of this namespace write it."""
    tokens = tokenize(text)
    statement = parse_tokens(tokens, text)
    if not namespace and is_plain(statement.nodes, STORED):
        return text
    return _written(tokens, text, statement, STORED, namespace or HOME)


def _written(tokens: Sequence[Token], text: str, statement: Statement, names: Names, within: str) -> str:
    """The text with each table written for a session in the database `within`."""
    source = opened(text)
    of_with = {n.alias.lower() for n in statement.nodes if isinstance(n, exp.CTE)}
    edits: list[tuple[int, int, str]] = []
    for node in named_tables(statement):
        database = node.args.get("db")
        names.internal(database.name if database else "", node.name)  # raises errors of the name
        of = names.checked(database.name) if database else names.current
        inside = of.lower() == within.lower()
        if inside == (database is None) or (inside and node.name.lower() in of_with):
            continue
        name = quote_identifier(node.name) if inside else f"{quote_identifier(of)}.{quote_identifier(node.name)}"
        first = node.this if database is None else database
        edits.append((first.meta["start"], node.this.meta["end"] + 1, name))
    out, at = list[str](), tokens[0].start
    for start, end, name in sorted(edits):
        out += [source[at:start], name]
        at = end
    return "".join([*out, source[at : tokens[-1].end + 1]])


__all__ = ["check_parts", "check_stored", "in_stored", "is_plain", "named_tables", "qualify", "shown_in"]
