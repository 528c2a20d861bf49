"""Says which privileges a statement needs, from its text and the names of columns.

    SELECT a FROM t          SELECT on t, or on its column a
    UPDATE t SET a = b       UPDATE on t or its column a, SELECT on t or its column b

Keeps true: it reads the same tree as the planner, before names are resolved, so that a refused name is refused whether
it exists or not.  A column that cannot be placed counts as one of every table that it may belong to.  A view needs
SELECT on the view alone: below it, the rights of its definer counted when it was made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from noria.accounts.checks import Need
from noria.accounts.grants import TableName
from noria.core.errors import SqlError
from noria.core.errors.codes import NO_DB
from noria.sql.statements import session
from noria.sql.statements.people.command_needs import needs_of_command
from noria.sql.statements.qualified import named_tables
from noria.sql.text import literal_rows
from noria.sql.text.databases import HOME, NOWHERE, Names
from noria.sql.text.select_into import without_into
from noria.sql.text.syntax import Statement, parse_tokens, statements_of, tokenize

Columns = Callable[[str, str], Sequence[str]]
"""The names of the columns of database.table; empty if it is unknown."""
_BLOCKS = (exp.Select, exp.Update, exp.Delete, exp.Insert)


def needs_of(text: str, names: Names, columns: Columns) -> list[Need]:
    """The privileges that the one statement of a text needs.  Raises SqlError for a text that is no statement."""
    text = literal_rows.head_of(text)
    statements = statements_of(tokenize(text))
    return [need for tokens in statements for need in _needs(tokens, text, names, columns)]


def _needs(tokens: list[Token], text: str, names: Names, columns: Columns) -> list[Need]:
    word = tokens[0].text.upper()
    if (named := _named_database(word, tokens)) is not None:  # before it is looked up
        return [Need((), (named, ""), sees=True)]
    said = session.command(tokens, text, names)
    if said is not None:
        return needs_of_command(said, names)
    if word in ("EXPLAIN", "DESCRIBE", "DESC"):
        rest = list(dropwhile(lambda t: t.text.upper() in _BEFORE_EXPLAINED, tokens[1:]))
        found = _needs(rest, text, names, columns) if rest else []
        return [*found, *(Need(("SHOW VIEW",), n.table, of_view=True) for n in found if "SELECT" in n.privileges)]
    if word == "DO":
        do = tokens[0]
        tokens = [Token(TokenType.SELECT, do.text, do.line, do.col, do.start, do.end), *tokens[1:]]
    tokens, _ = without_into(tokens)
    return _Tree(parse_tokens(tokens, text), names, columns).needs()


def _named_database(word: str, tokens: list[Token]) -> str | None:
    """The database of USE and of SHOW TABLES FROM."""
    words = [t.text.upper() for t in tokens]
    if word == "USE" and len(tokens) > 1:
        return tokens[1].text
    if word == "SHOW" and len(tokens) > 3 and words[-2] in ("FROM", "IN") and (
            {"TABLES", "TRIGGERS", "EVENTS", "VIEWS"} & set(words[1:3]) or words[1:3] == ["TABLE", "STATUS"]):
        return tokens[-1].text
    return None


_BEFORE_EXPLAINED = ("EXTENDED", "PARTITIONS", "ANALYZE", "FORMAT", "=", "TRADITIONAL", "TREE", "DEFAULT", "JSON")


@dataclass
class _Used:
    """A table of a FROM.  called: the name that columns use, folded."""

    node: exp.Table
    table: TableName
    called: str
    reads: set[str] = field(default_factory=set)
    selects: bool = False  # it is read, even if no column is named
    star: bool = False


class _Tree:
    """The needs of one parsed statement."""

    def __init__(self, statement: Statement, names: Names, columns: Columns):
        self._statement, self._tree, self._names = statement, statement.tree, names
        self._columns = columns
        self._here = HOME if names.is_home else names.namespace
        self._used: dict[int, list[_Used]] = {}  # by block
        self._written: dict[int, _Used] = {}  # by node

    def needs(self) -> list[Need]:
        tree = self._tree
        found = list(self._defined()) if isinstance(
            tree, exp.Create | exp.Drop | exp.Alter | exp.TruncateTable) else []
        skipped = {id(node) for node, _ in self._named_only}
        for node in named_tables(self._statement):
            if id(node) not in skipped:
                self._use(node)
        for part in self._statement.nodes:
            if isinstance(part, exp.Column):
                self._read(part)
            elif isinstance(part, exp.Star) and isinstance(part.parent, exp.Select):
                self._read_all(self._used.get(id(part.parent), []))
            elif isinstance(part, exp.Join) and part.args.get("using"):
                for name in part.args["using"]:
                    self._place(name.name, "", _block(part))
            elif isinstance(part, exp.Join) and part.args.get("method") == "NATURAL":
                self._read_common(part)
        found += self._writes()
        for used in (u for block in self._used.values() for u in block):
            if used.selects or used.reads:
                found.append(Need(("SELECT",), used.table, frozenset(used.reads), star=used.star,
                                  named=not used.selects))
        if any(lock.args.get("update") for lock in _locks(tree)):
            found += [Need(("UPDATE", "DELETE", "LOCK TABLES"), u.table, None, "SELECT, LOCK TABLES")
                      for block in self._used.values() for u in block if u.selects]
        return found

    # ------------------------------------------------------------ tables
    def _name(self, node: exp.Table) -> TableName:
        database = node.args["db"].name if node.args.get("db") else ""
        if not database and self._here == NOWHERE:
            raise SqlError(*NO_DB, "No database selected")
        return database or self._here, node.name

    def _use(self, node: exp.Table) -> None:
        table = self._name(node)
        if table[0].lower() == "information_schema":
            return
        block = _block(node)
        written = self._is_written(node, block)
        used = _Used(node, table, (node.alias or node.name).lower(), selects=not written)
        if isinstance(block, exp.Delete) and any(node is t for t in _deleted(block)):
            return  # a name of one that FROM has
        self._used.setdefault(id(block), []).append(used)
        if written:
            self._written[id(node)] = used

    def _is_written(self, node: exp.Table, block: exp.Expr | None) -> bool:
        """Whether the statement writes the table.  It reads it as well only if a column is read."""
        if isinstance(block, exp.Insert):
            target = block.this.this if isinstance(block.this, exp.Schema) else block.this
            return node is target
        if not isinstance(block, exp.Update | exp.Delete) or block is not self._tree.unnest():
            return False
        called = (node.alias or node.name).lower()
        if isinstance(block, exp.Delete):
            targets = {t.name.lower() for t in _deleted(block)}
            return called in targets if targets else node is block.this
        return any(self._sets(block, node, called, c) for c in _set_columns(block))

    def _sets(self, block: exp.Update, node: exp.Table, called: str, column: exp.Column) -> bool:
        """Whether an UPDATE may set this column in the table.  A name alone is of each table that has it."""
        if column.table:
            return column.table.lower() == called
        alone = node is block.this and not node.args.get("joins")
        return alone or column.name.lower() in {c.lower() for c in self._columns(*self._name(node))}

    # ------------------------------------------------------------ columns
    def _read(self, column: exp.Column) -> None:
        parent = column.parent
        if isinstance(parent, exp.EQ) and parent.this is column and (
                isinstance(parent.parent, exp.Update | exp.OnConflict)) and parent.arg_key == "expressions":
            return  # the column that is set
        if isinstance(column.this, exp.Star):
            self._read_all([u for u in self._used.get(id(_block(column)), []) if u.called == column.table.lower()])
            return
        self._place(column.name, column.table.lower(), _block(column))

    def _place(self, name: str, qualifier: str, block: exp.Expr | None) -> None:
        """Note that a column is read, in the innermost block that has it."""
        while block is not None:
            here = self._used.get(id(block), [])
            if qualifier:
                found = [u for u in here if u.called == qualifier]
            else:
                found = [u for u in here if name.lower() in {c.lower() for c in self._columns(*u.table)}]
                if not found and _block(block) is None and not _has_derived(block):
                    found = here  # the planner reports the unknown column
            for used in found:
                used.reads.add(name)
            if found:
                return
            block = _block(block)

    def _read_common(self, join: exp.Join) -> None:
        """Note that the columns of a NATURAL JOIN are read: those that two of its tables have."""
        block = _block(join)
        tables = self._used.get(id(block), [])
        known = [{c.lower() for c in self._columns(*used.table)} for used in tables]
        sources = 0 if block is None else sum(1 for n in self._statement.nodes if isinstance(
            n, exp.From | exp.Join) and _block(n) is block)
        if len(tables) < sources or not all(known):  # a source may have any column
            self._read_all(tables)
            return
        counts = Counter(name for names in known for name in names)
        for used, names in zip(tables, known, strict=True):
            used.reads.update(name for name in names if counts[name] > 1)

    def _read_all(self, tables: Sequence[_Used]) -> None:
        for used in tables:
            used.reads.update(self._columns(*used.table))
            used.star = True

    # ------------------------------------------------------------ writes
    def _writes(self) -> list[Need]:
        tree = self._tree
        if isinstance(tree, exp.Insert):
            return self._inserts(tree)
        if isinstance(tree, exp.Delete):
            return [Need(("DELETE",), used.table) for used in self._written.values()]
        if not isinstance(tree, exp.Update):
            return []
        written = list(self._written.values())
        found: list[Need] = []
        for used in written:
            columns = {c.name for c in _set_columns(tree) if self._sets(tree, used.node, used.called, c)}
            found.append(_need("UPDATE", used.table, columns))
        return found

    def _inserts(self, tree: exp.Insert) -> list[Need]:
        target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        table = self._name(target)
        listed = isinstance(tree.this, exp.Schema)
        names = {c.name for c in tree.this.expressions} if listed else set(self._columns(*table))
        found = [Need(("INSERT",), table, frozenset(names), star=not listed)]
        if self._statement.replace:
            found.append(Need(("DELETE",), table))
        conflict = tree.args.get("conflict")
        if conflict is not None:
            found.append(_need("UPDATE", table, {e.this.name for e in conflict.expressions}))
        return found

    # ------------------------------------------------------------ definitions
    @property
    def _named_only(self) -> list[tuple[exp.Table, str]]:
        """The tables that a definition names without reading them, each with its part in it."""
        tree, found = self._tree, list[tuple[exp.Table, str]]()
        if isinstance(tree, exp.Create):
            this = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
            if isinstance(this, exp.Index):
                return [(this.args["table"], "index")]
            found.append((this, "created"))
        elif isinstance(tree, exp.Alter):
            found.append((tree.this, "altered"))
        elif isinstance(tree, exp.TruncateTable):
            return [(t, "emptied") for t in tree.expressions]
        elif isinstance(tree, exp.Drop):
            if tree.kind == "INDEX":
                return [(tree.args["cluster"].this, "index")] if tree.args.get("cluster") else []
            return [(t, "dropped") for t in tree.args.get("tables") or [tree.this]]
        else:
            return []
        for node in self._statement.nodes:
            if isinstance(node, exp.Table) and node is not found[0][0]:
                above = node.parent.parent if isinstance(node.parent, exp.Schema) else node.parent
                if isinstance(above, exp.Reference):
                    found.append((node, "parent"))
                elif isinstance(node.parent, exp.AlterRename):
                    found.append((node, "renamed"))
        return found

    def _defined(self) -> list[Need]:
        tree, found = self._tree, list[Need]()
        for node, part in self._named_only:
            if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
                continue
            table = self._name(node)
            if part == "created" and self._statement.temporary:
                found.append(Need(("CREATE TEMPORARY TABLES",), (table[0], "")))
                continue
            if part == "created" and isinstance(tree, exp.Create) and tree.kind == "VIEW":
                found.append(Need(("CREATE VIEW",), table, kept=True))
                if tree.args.get("replace"):
                    found.append(Need(("DROP",), table, kept=True))
                continue
            if part == "created" and tree.args.get("expression") is not None:
                found.append(Need(("INSERT",), table, kept=True))
            renames = isinstance(tree, exp.Alter) and any(isinstance(a, exp.AlterRename) for a in tree.args["actions"])
            if part == "dropped" and self._statement.temporary:
                continue
            needed = _OF_PART[part] + (("DROP",) if part == "altered" and renames else ())
            kept = part in ("created", "parent", "renamed") or (isinstance(tree, exp.Drop) and tree.kind == "VIEW")
            found += [Need((privilege,), table, kept=kept) for privilege in needed]
        return found


_OF_PART = {"index": ("INDEX",), "created": ("CREATE",), "altered": ("ALTER",), "emptied": ("DROP",),
            "dropped": ("DROP",), "parent": ("REFERENCES",), "renamed": ("CREATE", "INSERT")}


def _need(privilege: str, table: TableName, columns: set[str]) -> Need:
    return Need((privilege,), table, frozenset(columns))


def _deleted(block: exp.Delete) -> list[exp.Table]:
    """The names before FROM, or before USING, of the tables that a DELETE writes."""
    if block.args.get("using"):
        return [block.this, *(j.this for j in block.this.args.get("joins") or ())]
    return list(block.args.get("tables") or ())


def _set_columns(block: exp.Update) -> list[exp.Column]:
    return [e.this for e in block.expressions if isinstance(e.this, exp.Column)]


def _block(node: exp.Expr) -> exp.Expr | None:
    above = node.parent
    while above is not None and not isinstance(above, _BLOCKS):
        above = above.parent
    return above


def _has_derived(block: exp.Expr) -> bool:
    """Whether the block reads rows of a subquery, which may have any column."""
    sources = [block.args.get("from_"), *(block.args.get("joins") or ())]
    return any(isinstance(s.this, exp.Subquery) for s in sources if s is not None) or (
        block.args.get("with_") is not None)


def _locks(tree: exp.Expr) -> list[exp.Lock]:
    return [lock for node in tree.walk() if isinstance(node, exp.Select) for lock in node.args.get("locks") or ()]


__all__ = ["Columns", "needs_of"]
