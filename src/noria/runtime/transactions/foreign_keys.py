"""Enforces FOREIGN KEYs: checks the keys that a statement of a transaction has changed, and cascades the changes.
Call `ForeignKeyChecks.stage`.

    staged ──► which keys did it change? ──► a child's new key: its parent exists, and is locked, else error 1452
                                         └─► a parent's lost key: no child has it (1451), or the children are
                                             deleted, or get NULL or the new key, by statements of the transaction

Keeps true: when a statement is done, each key of a child has a parent, and keeps it until the transaction ends, because
the parent is locked. A statement that fails is undone together with its cascades. INSERT IGNORE leaves out the rows
that lack a parent.

The only worker checks the parents of a plain INSERT itself, in the same request (`with_parents`).

Keys are checked at the end of a statement. InnoDB checks them row by row, so it refuses some statements that Noria
accepts. An example is one DELETE that removes a parent before its child.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from noria.core.errors import SqlError, interrupted, not_supported
from noria.core.errors.codes import FK_DEPTH_EXCEEDED, NO_REFERENCED_ROW_2, ROW_IS_REFERENCED_2
from noria.core.expressions.expr import const
from noria.core.expressions.key_condition import with_keys
from noria.core.statements import Delete, Insert, ParentKey, Statement, Update, WriteResult
from noria.core.types import Action, ForeignKey, TableDef
from noria.dataflow.messages.transaction_packets import FindKeys, ReadKeyChanges
from noria.runtime.routing.write_routing import Key, by_worker
from noria.runtime.transactions.client_transactions import ClientTransactions
from noria.runtime.transactions.open_transaction import OpenTransaction

FOREIGN_KEY_DEPTH = 15  # statements that may follow from each other, as in InnoDB
FOREIGN_KEYS_AT_ONCE = 200  # keys that one request looks up, or whose children it changes
Tables = Mapping[str, TableDef]  # by names in small letters
Describe = Callable[[TableDef, ForeignKey], str]  # `child`, CONSTRAINT …


class ForeignKeyChecks:
    """See the module. `tables`: those of the program now, which has this `version`. `describe`: a key as error messages
    show it."""

    def __init__(self, coordinator: ClientTransactions, tables: Callable[[], Tables], version: Callable[[], int],
                 describe: Describe):
        self._coordinator, self._tables, self._version, self._describe = coordinator, tables, version, describe
        self._known: dict[str, _Keys] = {}  # tables with keys, or to which others refer
        self._parents: dict[str, tuple[ParentKey, ...] | None] = {}
        self._known_version = -1

    def concerns(self, statement: Statement) -> bool:
        """Whether the statement may add a child's key, or remove a parent's."""
        return self._concerned(statement) is not None

    def with_parents(self, statement: Statement) -> Insert | None:
        """The INSERT with its FOREIGN KEYs, if there is only one worker, which checks them. None: `stage` checks them,
        if it concerns any."""
        if type(statement) is not Insert or statement.on_duplicate != "error" or self._coordinator.workers > 1:
            return None
        known = self._known_of(statement.table)
        if known is None or not known.keys:
            return None
        name = known.table.name
        if name not in self._parents:
            self._parents[name] = self._parents_of(known)
        parents = self._parents[name]
        return None if parents is None else statement._replace(parents=parents)

    def _parents_of(self, known: _Keys) -> tuple[ParentKey, ...] | None:
        """The keys as the worker checks them; None if a parent is missing."""
        found = []
        for key in known.keys:
            if (parent := self._tables().get(key.parent.lower())) is None:
                return None
            found.append(ParentKey(key.columns, parent.name, key.positions_in(parent),
                                   self._orphan_text(known.table, key)))
        return tuple(found)

    def _known_of(self, table: str) -> _Keys | None:
        if self._known_version != self._version():
            self._known_version, self._known, self._parents = self._version(), _keys_of(self._tables()), {}
        return self._known.get(table.lower())

    def _concerned(self, statement: Statement) -> _Keys | None:
        """The keys that the statement may add, and those that refer to what it may remove."""
        known = self._known_of(statement.table)
        if known is None:
            return None
        table = known.table
        concerned = _Keys(table, [k for k in known.keys if _may_add(statement, table, k.columns)],
                      [r for r in known.references if _may_remove(statement, table, r[2])])
        return concerned if concerned.keys or concerned.references else None

    async def stage(self, transaction: OpenTransaction, statement: Statement, wait_s: float, depth: int = 0
                    ) -> WriteResult:
        """Run a statement within the transaction, and its cascades. Raises SqlError 1451, 1452 and those
        of `ClientTransactions.stage`; then nothing is done."""
        if depth > FOREIGN_KEY_DEPTH:
            raise SqlError(*FK_DEPTH_EXCEEDED, "Foreign key cascade delete/update exceeds max depth of "
                                               f"{FOREIGN_KEY_DEPTH}.")
        if (checked := self.with_parents(statement)) is not None:
            transaction.locked.update(key.parent for key in checked.parents)
            return await self._coordinator.stage(transaction, checked, wait_s)
        if isinstance(statement, Insert) and statement.on_duplicate == "replace":
            concerned = self._concerned(statement)
            statement = statement._replace(renews=concerned is not None and bool(concerned.references))
        before = transaction.mark()
        left_out: list[_Orphans] = []
        while True:
            try:
                return await self._staged(transaction, statement, left_out, before, wait_s, depth)
            except _Orphans as orphans:
                if any(orphans.columns == known.columns and orphans.keys == known.keys for known in left_out):
                    raise  # the removal matched none of these rows: nothing is done
                await self._refuse_older(transaction, orphans, wait_s)
                left_out.append(orphans)

    async def _staged(self, transaction: OpenTransaction, statement: Statement, left_out: Sequence[_Orphans],
                      before: Mapping[int, int], wait_s: float, depth: int) -> WriteResult:
        """Run a statement and its cascades, without the rows that have these keys. Raises _Orphans for more
        rows to leave out."""
        result = await self._coordinator.stage(transaction, statement, wait_s)
        try:
            for removal in (r for orphans in left_out for r in orphans.removals()):
                removal_result = await self._coordinator.stage(transaction, removal, wait_s)
                result = result._replace(affected=result.affected - removal_result.affected)
            await self._keep(transaction, statement, before, wait_s, depth)
        except SqlError:
            if transaction.lost is None:
                await self._coordinator.back_to(transaction, before)
            raise
        except BaseException:  # stopped at a moment at which nothing can be undone
            self._coordinator.lose(transaction, interrupted())
            raise
        return result

    async def _refuse_older(self, transaction: OpenTransaction, orphans: _Orphans, wait_s: float) -> None:
        """Raise SqlError if rows that the statement, now undone, has not added have these keys: they must stay."""
        absent = await self._missing(transaction, orphans.child, orphans.columns, orphans.keys, False, wait_s)
        if len(absent) < len(orphans.keys):
            raise not_supported("INSERT IGNORE of a row without a parent, beside older ones", "leave the row out")

    async def _keep(self, transaction: OpenTransaction, statement: Statement, before: Mapping[int, int], wait_s: float,
                    depth: int) -> None:
        concerned = self._concerned(statement)
        if concerned is None:
            return
        table, keys, references = concerned
        sets = list(dict.fromkeys([*(k.columns for k in keys), *(at for _, _, at in references)]))
        changes = await self._changes(transaction, before, table, sets, wait_s)
        for key in keys:
            await self._need_parents(transaction, statement, table, key, changes[key.columns].added, wait_s)
        for child, key, at in references:
            await self._follow(transaction, statement, table, child, key, changes[at], wait_s, depth)

    async def _changes(self, transaction: OpenTransaction, before: Mapping[int, int], table: TableDef,
                       sets: Sequence[tuple[int, ...]], wait_s: float) -> dict[tuple[int, ...], _Changes]:
        """The net changes of the values of each set of columns, at all workers together."""
        concerned = [w for w, done in transaction.done.items() if done > before.get(w, 0)]
        answers = await self._coordinator.ask(transaction, {
            w: ReadKeyChanges(0, transaction.name, transaction.done[w], before.get(w, 0), table.name, tuple(sets))
            for w in concerned}, wait_s)
        changes = {}
        for n, columns in enumerate(sets):
            net: Counter[Key] = Counter()
            for each in answers:
                net.update(each[n].net_added)
                net.subtract(each[n].net_removed)
            pairs = {old: new for each in answers for old, new in zip(each[n].old, each[n].new, strict=True)}
            removed = list(dict.fromkeys(k for each in answers for k in each[n].removed))
            changes[columns] = _Changes([k for k, c in net.items() if c < 0], [k for k, c in net.items() if c > 0],
                                      removed, pairs)
        return changes

    async def _need_parents(self, transaction: OpenTransaction, statement: Statement, child: TableDef,
                            key: ForeignKey, values: Sequence[Key], wait_s: float) -> None:
        if not values:
            return
        parent, missing = self._tables().get(key.parent.lower()), list(values)
        if parent is not None:
            missing = await self._missing(transaction, parent, key.positions_in(parent), values, True, wait_s)
            if not missing:
                return
        if isinstance(statement, Insert) and statement.on_duplicate == "ignore":
            raise _Orphans(child, key, missing)
        raise SqlError(*NO_REFERENCED_ROW_2, self._orphan_text(child, key))

    def _orphan_text(self, child: TableDef, key: ForeignKey) -> str:
        return f"Cannot add or update a child row: a foreign key constraint fails ({self._describe(child, key)})"

    async def _follow(self, transaction: OpenTransaction, statement: Statement, table: TableDef, child: TableDef,
                      key: ForeignKey, changes: _Changes, wait_s: float, depth: int) -> None:
        """Apply the key's ON DELETE or ON UPDATE action for the keys that the table has lost."""
        replaces = isinstance(statement, Insert) and statement.on_duplicate == "replace"  # it deletes, and inserts
        lost = changes.removed if replaces else changes.lost
        if not lost:
            return
        transaction.removed.add(table.name.lower())
        updates = isinstance(statement, Update) or (isinstance(statement, Insert) and not replaces)
        action = key.on_update if updates else key.on_delete
        childless = set(await self._missing(transaction, child, key.columns, lost, False, wait_s))
        had = [k for k in lost if k not in childless]
        if updates and had:  # a key that is only written in another way is there still
            had = await self._missing(transaction, table, key.positions_in(table), had, False, wait_s)
        if not had:
            return
        if action.refuses:
            raise SqlError(*ROW_IS_REFERENCED_2, "Cannot delete or update a parent row: a foreign key constraint fails "
                                                 f"({self._describe(child, key)})")
        if action is Action.CASCADE and updates:
            for old, new in _in_turn(changes.paired(had)):
                await self.stage(transaction, Update(child.name, tuple(
                    (c, const(v, child.columns[c].type)) for c, v in zip(key.columns, new, strict=True)),
                    with_keys(child, key.columns, [old])), wait_s, depth + 1)
            return
        for some in _chunks(had):
            where = with_keys(child, key.columns, some)
            nulls = tuple((c, const(None, child.columns[c].type)) for c in key.columns)
            follows = Delete(child.name, where) if action is Action.CASCADE else Update(child.name, nulls, where)
            await self.stage(transaction, follows, wait_s, depth + 1)

    async def _missing(self, transaction: OpenTransaction, table: TableDef, columns: tuple[int, ...],
                       keys: Sequence[Key], lock: bool, wait_s: float) -> list[Key]:
        """The keys that no row of the table has, at any worker. `lock`: lock the matched rows."""
        missing: list[Key] = []
        if lock:
            transaction.locked.add(table.name)
        for some in _chunks(keys):
            keys_of = by_worker(table, some, self._coordinator.workers, columns)
            answers = await self._coordinator.ask(transaction, {
                w: FindKeys(0, transaction.name, transaction.done.get(w, 0), table.name, columns, tuple(mine), lock)
                for w, mine in keys_of.items()}, wait_s)
            absent = Counter(mine[n] for mine, numbers in zip(keys_of.values(), answers, strict=True) for n in numbers)
            times = Counter(k for mine in keys_of.values() for k in mine)
            missing += [k for k in some if absent[k] == times[k]]
        return missing


class _Orphans(SqlError):
    """The keys of rows of an INSERT IGNORE that have no parent. It adds the others."""

    def __init__(self, child: TableDef, key: ForeignKey, keys: Sequence[Key]):
        super().__init__(*NO_REFERENCED_ROW_2, f"rows of {child.name} have no parent")
        self.child, self.columns, self.keys = child, key.columns, keys

    def removals(self) -> Iterator[Delete]:
        """The statements that remove these rows."""
        for some in _chunks(self.keys):
            yield Delete(self.child.name, with_keys(self.child, self.columns, some))


class _Changes:
    """The keys that a table has lost and those added to it, net. `removed`: the keys of all removed rows. `pairs`: the
    new key of each old one, of rows that were changed in place."""

    def __init__(self, lost: list[Key], added: list[Key], removed: list[Key], pairs: Mapping[Key, Key]):
        self.lost, self.added, self.removed, self._pairs = lost, added, removed, pairs

    def paired(self, keys: Sequence[Key]) -> dict[Key, Key]:
        """The new key of each of these old ones."""
        if len(self.lost) == len(self.added) == 1:
            return {self.lost[0]: self.added[0]}
        if any(k not in self._pairs for k in keys):
            raise not_supported("ON UPDATE CASCADE of several rows that move to other workers", "update one at a time")
        return {k: self._pairs[k] for k in keys}


class _Keys(NamedTuple):
    """A table's FOREIGN KEYs, and those that refer to it, also its own, with its columns that they name."""

    table: TableDef
    keys: list[ForeignKey]
    references: list[tuple[TableDef, ForeignKey, tuple[int, ...]]]


def _keys_of(tables: Tables) -> dict[str, _Keys]:
    """The keys of all tables that have some, or to which some refer, by name in small letters."""
    keys_of = {name: _Keys(table, list(table.foreign_keys), []) for name, table in tables.items()}
    for child in tables.values():
        for key in child.foreign_keys:
            if (parent := keys_of.get(key.parent.lower())) is not None:  # else foreign_key_checks was 0
                parent.references.append((child, key, key.positions_in(parent.table)))
    return {name: keys for name, keys in keys_of.items() if keys.keys or keys.references}


def _may_add(statement: Statement, table: TableDef, columns: Sequence[int]) -> bool:
    """Whether the statement may add new values of the columns."""
    return isinstance(statement, Insert) or (isinstance(statement, Update) and _assigns(statement, table, columns))


def _may_remove(statement: Statement, table: TableDef, columns: Sequence[int]) -> bool:
    """Whether the statement may remove values of the columns."""
    if isinstance(statement, Insert) and statement.on_duplicate != "replace":
        return statement.on_duplicate == "update" and _assigns(statement, table, columns)
    return not isinstance(statement, Update) or _assigns(statement, table, columns)


def _assigns(statement: Insert | Update, table: TableDef, columns: Sequence[int]) -> bool:
    """Whether the statement's assignments may change the columns."""
    assigned = {at for at, _ in statement.assignments}
    return any(c in assigned or table.columns[c].generated or table.columns[c].update_now for c in columns)


def _in_turn(pairs: Mapping[Key, Key]) -> Iterator[tuple[Key, Key]]:
    """The changes of keys in an order in which none makes a key that a later one changes."""
    left = dict(pairs)
    while left:
        free = [old for old, new in left.items() if new not in left or new == old]
        if not free:
            raise not_supported("ON UPDATE CASCADE of keys that change places", "update them one at a time")
        for old in free:
            yield old, left.pop(old)


def _chunks(keys: Sequence[Key]) -> Iterator[list[Key]]:
    for at in range(0, len(keys), FOREIGN_KEYS_AT_ONCE):
        yield list(keys[at : at + FOREIGN_KEYS_AT_ONCE])
