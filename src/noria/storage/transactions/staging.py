"""The open transactions of one store: their staged effects, snapshots and locks.

    stage ──► effects on the transaction's own stages ──► commit: moved into the stages of a write call
                │ a key is locked                         end: forgotten
                └──► Blocked: nothing is done, and the statement is repeated when it has the lock

Keeps true: a statement is staged whole or not at all.  Staged effects still hold at the commit, because their keys are
locked.  AUTO_INCREMENT values and row numbers are used up at once, so no two transactions get the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import SqlError, definition_changed, unknown_table
from noria.core.errors.codes import LOCK_DEADLOCK, LOCK_TABLE_FULL, TRANS_CACHE_FULL
from noria.core.expressions.column_ranges import bounded
from noria.core.expressions.key_condition import with_keys
from noria.core.limits import TRANSACTION_BYTES
from noria.core.statements import (
    Delete,
    Insert,
    KeyChange,
    Move,
    Staged,
    StagedPart,
    Statement,
    Update,
    WriteResult,
)
from noria.core.symbols import Symbols
from noria.core.values import convert
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.transactions.locks import Blocked, LockTable, Resource, locked
from noria.state.rows.netting import netted
from noria.storage.rocks.engine import RocksEngine
from noria.storage.statements.find import find
from noria.storage.statements.parents import absent
from noria.storage.statements.stage import Effect, FamilyChange, TableStage
from noria.storage.statements.writer import run
from noria.storage.tables.shards import Shard
from noria.storage.tables.table import Counters, StoredTable
from noria.storage.transactions.guard import Guard
from noria.storage.transactions.history import History, undone
from noria.storage.transactions.key_changes import key_changes
from noria.storage.transactions.read_notes import ReadNotes, conflict, lost_notes, not_serializable

MOST_LOCKS = 1_000_000  # of one worker; then SELECT … FOR UPDATE locks no more rows
Marks = dict[str, tuple[int, Counters]]


@dataclass
class _Open:
    """One transaction.  marks: the stages before each of its requests.  nbytes: of its effects, about."""

    stages: dict[str, TableStage] = field(default_factory=dict)
    marks: list[Marks] = field(default_factory=list)
    shapes: dict[str, tuple[object, ...]] = field(default_factory=dict)  # of each table, when it was first written
    deltas: dict[str, tuple[tuple[int, int], Batch]] = field(default_factory=dict)  # computed for reads
    nbytes: int = 0

    @property
    def rows(self) -> int:
        return sum(e.old.shape[1] + e.new.shape[1] for s in self.stages.values() for e in s.effects)


class StagedTransactions:
    """See the module.  tables: the store's, by name.  readable: returns a table, or raises the error of its damage.

    refuse: raises an SqlError if a group that was prepared in an earlier life concerns the table.
    """

    refuse: Callable[[str], None] = staticmethod(lambda table: None)

    def __init__(self, engine: RocksEngine, symbols: Symbols, tables: Mapping[str, StoredTable],
                 readable: Callable[[str], StoredTable], shard: Shard | None):
        self._engine, self._symbols, self._tables, self._readable = engine, symbols, tables, readable
        self._shard = shard
        self._open: dict[str, _Open] = {}
        self._nbytes = 0  # of all open transactions
        self.locks, self.history = LockTable(), History()
        self._notes: dict[str, ReadNotes] = {}  # of the SERIALIZABLE transactions

    def __len__(self) -> int:
        return len(self._open)

    # ---------------------------------------------------------------- statements
    def guard(self, table: StoredTable) -> Guard | None:
        """The guard of a statement without a transaction; None if no lock is held."""
        return Guard(self.locks, None, table) if self.locks else None

    def stage(self, transaction: str, done: int, statements: Sequence[Statement], limits: RequestLimits | None = None
              ) -> list[WriteResult]:
        """Run statements within the transaction, all or none; return their results.

        done: how many requests of the transaction this store has staged.  Raises Blocked, and SqlError 1213 if the
        earlier ones are lost.
        """
        found = self._of(transaction, done)
        mark: Marks = {name: stage.mark() for name, stage in found.stages.items()}
        results: list[WriteResult] = []
        for statement in statements:
            result = self._run(transaction, found, statement, limits, mark)
            results.append(result)
            if result.error is not None:
                self._undo(found, mark)
                break
        else:
            found.marks.append(mark)
            self._open[transaction] = found
        if len(statements) > 1 and results[-1].error is not None:
            results = [results[-1]] * len(statements)
        return results

    def _run(self, transaction: str, found: _Open, statement: Statement, limits: RequestLimits | None, mark: Marks
             ) -> WriteResult:
        try:
            stage = self._stage(found, statement.table)
            self._use(transaction, statement.table)
            parents = self._parents(transaction, found, statement)
        except SqlError as error:
            return WriteResult(error=error)
        except Blocked:
            self._undo(found, mark)
            raise
        stages, mets = [stage, *parents.values()], [self._met(transaction) for _ in range(1 + len(parents))]
        guards = [Guard(self.locks, transaction, of.table, met=met, shared=of is not stage)
                  for of, met in zip(stages, mets, strict=True)]
        for of, guard in zip(stages, guards, strict=True):
            of.guard, of.limits = guard, limits
        stage.parents = parents.__getitem__
        stage.counters = stage.table.counters
        before = len(stage.effects)
        result = run(stage, statement, self._symbols)
        for of in stages:
            of.guard = of.limits = of.parents = None
        if (blocked := next((g.blocked for g in guards if g.blocked is not None), None)) is not None:
            self._undo(found, mark)
            raise blocked
        for of, guard, met in zip(stages, guards, mets, strict=True):
            self._note(transaction, of.table, met, guard if result.error is None else None)
        self.note_where(transaction, statement)
        if result.error is not None:
            self._use_up(stage)
            return result
        self._grow(found, sum(map(_size, stage.effects[before:])))
        if self._nbytes > TRANSACTION_BYTES:
            return WriteResult(error=SqlError(
                *TRANS_CACHE_FULL, f"Open transactions have more than {TRANSACTION_BYTES} bytes of changes: commit "
                                   "more often, or write so many rows by `noria load`"))
        for guard in guards:
            guard.take()
        self._use_up(stage)
        return result

    def _parents(self, transaction: str, found: _Open, statement: Statement) -> dict[str, TableStage]:
        """The stages of the tables that the INSERT's FOREIGN KEYs refer to, whose definitions the transaction keeps."""
        parents: dict[str, TableStage] = {}
        for key in statement.parents if isinstance(statement, Insert) else ():
            if key.parent != statement.table and key.parent not in parents:
                if key.parent not in self._tables:
                    raise definition_changed()
                parents[key.parent] = self._stage(found, key.parent)
                self._use(transaction, key.parent)
        return parents

    @staticmethod
    def _use_up(stage: TableStage) -> None:
        """Nobody gets the numbers again that the stage has assigned."""
        known, own = stage.table.counters, stage.counters
        stage.table.counters = known._replace(auto_increment=max(known.auto_increment, own.auto_increment),
                                              row_number=max(known.row_number, own.row_number))

    @contextmanager
    def looking(self, part: StagedPart, table: str, limits: RequestLimits | None,
                reserves: bool) -> Iterator[TableStage]:
        """Yield a stage that reads what the transaction has staged, and forget its effects afterwards.

        The transaction gets the locks of their rows.  reserves: also of all keys that are looked up.  Raises Blocked,
        and SqlError 1213 if the earlier requests are lost.
        """
        found = self._of(part.transaction, part.done)
        self._use(part.transaction, table)
        known = found.stages.get(table)
        stage = self._stage(found, table)
        stage.counters = stage.table.counters
        mark, met = stage.mark(), self._met(part.transaction)
        guard = stage.guard = Guard(self.locks, part.transaction, stage.table, reserves, met)
        stage.limits, stage.shard = limits, None
        try:
            yield stage
        except SqlError:
            if guard.blocked is None:
                self._note(part.transaction, stage.table, met)
                raise
        finally:
            self._use_up(stage)
            stage.undo(mark)
            stage.guard = stage.limits = None
            stage.shard = self._shard
            if known is None:
                del found.stages[table], found.shapes[table]
        if guard.blocked is not None:
            raise guard.blocked
        self._note(part.transaction, stage.table, met, guard)
        guard.take()
        self._open[part.transaction] = found

    def key_changes(self, transaction: str, done: int, since: int, name: str, columns: Sequence[tuple[int, ...]]
                    ) -> tuple[KeyChange, ...]:
        """What the requests from `since` on did to the values of each set of columns."""
        found = self._of(transaction, done)
        stage = found.stages.get(name)
        if stage is None or since >= len(found.marks):
            return tuple(KeyChange((), (), (), (), ()) for _ in columns)
        mark = found.marks[since].get(name)
        return key_changes(stage, 0 if mark is None else mark[0], columns, self._symbols)

    def find_keys(self, part: StagedPart, name: str, columns: tuple[int, ...], keys: Sequence[tuple[object, ...]],
                  lock: bool) -> tuple[int, ...]:
        """The positions of the keys that no row has.  lock: lock the rows that are found, shared.  Raises Blocked."""
        with self.looking(part, name, None, False) as stage:
            where = with_keys(stage.table.definition, columns, keys)
            self.note_where(part.transaction, Delete(name, where))
            rows = find(stage, where, self._symbols)
            missing = absent(stage.table, columns, keys, rows.codes, self._symbols)
            wanted = [(stage.table.family, key) for key in rows.keys] if lock else []
        if (wrong := self.locks.acquire(part.transaction, wanted, exclusive=False)) is not None:
            raise Blocked(wrong, exclusive=False)
        return missing

    def _use(self, transaction: str, table: str) -> None:
        """Keep the table's definition until the transaction ends.  Raises Blocked while another is being made."""
        if (wrong := self.locks.acquire(transaction, (_definition(table),), exclusive=False)) is not None:
            raise Blocked(wrong, exclusive=False)

    def lock_definitions(self, transaction: str, tables: Sequence[str]) -> None:
        if (wrong := self.locks.acquire(transaction, map(_definition, tables))) is not None:
            raise Blocked(wrong)

    def lock_rows(self, transaction: str, done: int, name: str, keys: Sequence[tuple[object, ...]], exclusive: bool,
                  how: str) -> tuple[int, ...]:
        """Lock rows by the values of their primary keys, as `LockRows` says."""
        self._of(transaction, done)
        table = self._readable(name)
        self.refuse(name)
        self._use(transaction, name)
        columns = [table.definition.columns[c] for c in table.key]
        codes = [convert([key[n] for key in keys], column, 1, self._symbols) for n, column in enumerate(columns)]
        wanted = [(table.family, key) for key in table.columns_key(codes, table.key)]
        if len(self.locks) + len(wanted) > MOST_LOCKS:
            raise SqlError(*LOCK_TABLE_FULL, "The total number of locks exceeds the lock table size")
        if how == "skip":
            return tuple(n for n, one in enumerate(wanted) if self.locks.acquire(transaction, (one,), exclusive))
        if (wrong := self.locks.acquire(transaction, wanted, exclusive)) is not None:
            raise locked() if how == "nowait" else Blocked(wrong, exclusive)
        return ()

    def _stage(self, found: _Open, name: str) -> TableStage:
        table = self._readable(name)
        self.refuse(name)
        stage = found.stages.get(name)
        if stage is None:
            stage = found.stages[name] = TableStage(self._engine, table, table.counters, None, self._shard)
            found.shapes[name] = _shape(table)
        elif found.shapes[name][0] is not table.definition:
            raise definition_changed()
        elif found.shapes[name] != _shape(table):
            before = sum(map(_size, stage.effects))
            stage.adopt([adapted(e, table) for e in stage.effects])
            self._grow(found, sum(map(_size, stage.effects)) - before)
            found.shapes[name] = _shape(table)
        return stage

    def _grow(self, found: _Open, nbytes: int) -> None:
        found.nbytes += nbytes
        self._nbytes += nbytes

    def _undo(self, found: _Open, mark: Marks) -> None:
        for name, stage in list(found.stages.items()):
            kept = mark[name][0] if name in mark else 0
            self._grow(found, -sum(map(_size, stage.effects[kept:])))
            if name in mark:
                stage.undo(mark[name])
            else:
                del found.stages[name], found.shapes[name]
        found.deltas.clear()

    # ---------------------------------------------------------------- what SERIALIZABLE transactions read
    def mark_reads(self, transaction: str, marks: int) -> None:
        """Mark this moment, as `MarkReads` says."""
        notes = self._notes.setdefault(transaction, ReadNotes()) if marks == 0 else self._notes.get(transaction)
        if notes is None or len(notes.marks) != marks:
            raise lost_notes()
        self.history.keep(transaction)
        notes.marks.append(self.history.position)

    def _met(self, transaction: str) -> list[Resource] | None:
        """Where a guard collects the keys that it meets; None if nobody checks them later."""
        return [] if transaction in self._notes else None

    def _note(self, transaction: str, table: StoredTable, met: list[Resource] | None, locked: Guard | None = None
              ) -> None:
        """Note the keys that a statement met, except those that it has locked."""
        if met:
            ours = locked.wanted if locked is not None else ()
            self._notes[transaction].looked_up(table.name, (m for m in met if m not in ours), self.history.position)

    def note_where(self, transaction: str, statement: Statement) -> None:
        """Note the rows that the statement's condition found, or would have found."""
        if isinstance(statement, Update | Delete) and (notes := self._notes.get(transaction)) is not None:
            table = self._tables[statement.table]
            if not table.key or not set(table.key) <= bounded(statement.where, table.types).keys():
                notes.read(table.name, statement.where, self.history.position)  # else its keys are noted

    def refuse_changed(self, statement: Staged, stages: Mapping[str, TableStage]) -> None:
        """Raise SqlError 1213 if others have changed what the transaction has read.  stages: what is committed before
        it."""
        if not statement.checks_reads:
            return
        notes = self._notes.get(statement.transaction)
        if notes is None or len(notes.marks) != statement.marks:
            raise lost_notes()
        others = {name: stage.changed(stage.delta()) for name, stage in stages.items() if stage.effects}
        found = conflict(notes, statement.reads, self.history, others, self._keys_in, self._symbols)
        if found is not None:
            raise not_serializable(found)

    def _keys_in(self, name: str, family: str, keys: list[bytes], rows: Codes) -> list[bytes]:
        """The keys of rows in a family of the table."""
        table = self._tables[name]
        index = next((i for i in table.indexes if i.family == family), None)
        return keys if index is None else table.index_keys(index, rows, keys)

    # ---------------------------------------------------------------- savepoints and ends
    def undo(self, transaction: str, done: int, keep: int) -> None:
        """Undo all but the first `keep` requests of the transaction.  Their locks stay."""
        found = self._of(transaction, done)
        if keep < len(found.marks):
            self._undo(found, found.marks[keep])
            del found.marks[keep:]

    def end(self, transaction: str) -> list[str]:
        """Forget a transaction, after its commit or instead of it.  Returns those whose requests get a lock now."""
        if (found := self._open.pop(transaction, None)) is not None:
            self._grow(found, -found.nbytes)
        self._notes.pop(transaction, None)
        self.history.close(transaction)
        return [str(owner) for owner in self.locks.release(transaction)]

    def work_of(self, transaction: str) -> int:
        """The rows that the transaction has staged: what is lost if it is rolled back."""
        found = self._open.get(transaction)
        return 0 if found is None else found.rows

    def _of(self, transaction: str, done: int) -> _Open:
        found = self._open.get(transaction) or _Open()
        if len(found.marks) != done:
            raise SqlError(*LOCK_DEADLOCK, "A worker was lost, and with it what the transaction had written: it is "
                                           "rolled back; try restarting transaction")
        return found

    # ---------------------------------------------------------------- commit
    def merge(self, statement: Staged, stage_of: Callable[[str], TableStage], before: Mapping[str, TableStage]
              ) -> WriteResult:
        """Move the transaction's effects into the stages of a write call.  before: those of earlier statements."""
        try:
            self.refuse_changed(statement, before)
            stages = self._staged_effects(statement)
        except SqlError as error:
            return WriteResult(error=error)
        rows = 0
        for name, own in stages.items():
            into = stage_of(name)
            into.take_over(own.effects)
            rows += sum(max(e.old.shape[1], e.new.shape[1]) for e in own.effects)
        return WriteResult(affected=rows)

    def moves(self, statement: Staged) -> tuple[Move, ...]:
        """The transaction's effects as statements that can be stored.  Raises SqlError if they are lost."""
        self.refuse_changed(statement, {})
        found = []
        for name, own in self._staged_effects(statement).items():
            removed, _, added_keys, added = own.changed(own.delta())
            if removed or added_keys:
                found.append(Move(name, tuple(removed), tuple(own.table.rows(added))))
        return tuple(found)

    def _staged_effects(self, statement: Staged) -> dict[str, TableStage]:
        found = self._of(statement.transaction, statement.done)
        for name in list(found.stages):
            if name not in self._tables:
                raise unknown_table(name)
            self._stage(found, name)
        return {name: stage for name, stage in found.stages.items() if stage.effects}

    # ---------------------------------------------------------------- reads
    def deltas(self, transaction: str, done: int, snapshot: bool, tables: Sequence[str]) -> dict[str, Batch]:
        """By table, the rows that exist or lack for the transaction only, with their signs.

        snapshot: as of its snapshot.  tables: those to be read.  Raises SqlError 1213 and 1412.
        """
        found = self._of(transaction, done)
        if snapshot and not self.history.has(transaction):
            raise SqlError(*LOCK_DEADLOCK, "A worker was lost, and with it the transaction's snapshot: it is rolled "
                                           "back; try restarting transaction")
        deltas = {}
        for name in tables:
            if snapshot:
                self.history.check(transaction, name)
            own = found.stages.get(name)
            parts = [] if own is None or not own.effects else [self._delta(found, own)]
            if snapshot and (later := self.history.since(transaction, name)):
                kept = frozenset() if own is None else frozenset(own.overlay(own.table.family))
                parts += undone(later, kept, self._tables[name].width)
            if parts:
                deltas[name] = netted(concat(parts, parts[0].width)) if len(parts) > 1 else parts[0]
        return {name: delta for name, delta in deltas.items() if len(delta)}

    @staticmethod
    def _delta(found: _Open, stage: TableStage) -> Batch:
        name, version = stage.table.name, (id(stage), len(stage.effects))
        known = found.deltas.get(name)
        if known is None or known[0] != version:
            known = found.deltas[name] = version, stage.delta()
        return known[1]

    def held(self) -> Iterator[Codes]:
        """The codes whose texts must not be freed."""
        for found in self._open.values():
            for stage in found.stages.values():
                for effect in stage.effects:
                    yield from effect.old
                    yield from effect.new
            for _, delta in found.deltas.values():
                yield from delta.columns
        yield from self.history.held()


def _definition(table: str) -> Resource:
    """What stands for a table's definition in the lock table."""
    return "", table.lower().encode()


def _shape(table: StoredTable) -> tuple[object, ...]:
    """What the effects on a table depend on."""
    return (table.definition, *(i.family for i in table.maintained))


def _size(effect: Effect) -> int:
    """The bytes of an effect, about."""
    keys = sum(len(k) for change in effect.changes for some in (change.removed, change.keys, change.values)
               for k in some)
    return int(effect.old.nbytes + effect.new.nbytes) + keys


def adapted(effect: Effect, table: StoredTable) -> Effect:
    """The same effect for the plain indexes that the table has now."""
    (rows, *entries), old, new = effect.changes, effect.old, effect.new
    there = {change.family: change for change in entries}
    removed = rows.removed if not new.shape[1] else table.keys(old) if table.key else rows.keys
    changes = [rows]
    for index in table.maintained:
        known = there.get(index.family)
        changes.append(known or FamilyChange(
            index.family, table.index_keys(index, old, removed) if old.shape[1] else [],
            table.index_keys(index, new, rows.keys) if new.shape[1] else [], rows.keys))
    return Effect(changes, old, new)
