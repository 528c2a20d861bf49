"""The base tables of one worker's shard, on RocksDB (section 6.1 of the paper; DESIGN section 8).

Keeps true:

* ACK-DURABLE: `write` returns after one synced commit.  It holds the statements' whole changes, the tables' counters,
  and (epoch, seq) with the results.  So a resend returns the first results and changes nothing.
* A failed statement changes nothing.  Without space every statement of the call fails and the store continues.
* `set_recipe` writes the catalog together with the statements it follows from.  Families outside the catalog are
  leftovers of a crash; opening the store drops them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
from rocksdict import WriteBatch

from noria.core.batch import Batch, Codes, Texts
from noria.core.errors import SqlError, table_exists, unknown_table
from noria.core.integers import codes_of
from noria.core.statements import Clear, Delete, Insert, Load, Staged, Statement, WriteResult, tables_written
from noria.core.symbols import Symbols
from noria.core.types import TableDef
from noria.dataflow.graph.work import Work
from noria.dataflow.messages.packets import Note, Noted
from noria.storage.commits import bulk, prepared
from noria.storage.commits.delta_log import DeltaLog
from noria.storage.commits.loading import result_of
from noria.storage.commits.two_phase import TwoPhaseStore, only_errors
from noria.storage.format.catalog import Done
from noria.storage.format.encoding import first_codes
from noria.storage.online.fitting import Fitting, entries_of, refuse_unfit, set_unique
from noria.storage.online.indexing import IndexBuild, build_whole
from noria.storage.online.rekeying import switched
from noria.storage.rocks.engine import Engine, Memory
from noria.storage.rocks.errors import damaged
from noria.storage.rocks.stand import StorePosition
from noria.storage.statements.stage import SCAN_ROWS, Stage
from noria.storage.statements.writer import bare, joins, run, run_inserts
from noria.storage.tables import lookups, meta
from noria.storage.tables.shards import Shard
from noria.storage.tables.table import Index, Table
from noria.storage.transactions.guard import Guards
from noria.storage.transactions.staging import StagedTransactions


class RocksStore(TwoPhaseStore):
    """Implements dataflow.protocols.BaseStore."""

    def __init__(self, path: str, symbols: Symbols, fence: int | None = None, memory: Memory | None = None,
                 shard: Shard | None = None):
        """Open the data directory, or create it.  Raises StoreError if it cannot be used.

        fence: the owner's epoch; a store that was opened with a later one rejects it (StoreFenced).  shard: the rows
        that may be added (None: any).
        """
        self.path, self._symbols, self._shard = path, symbols, shard
        self._refused: Done | None = None
        self._engine = Engine(path, memory or Memory())
        self._engine.reopened = self._settle
        self._engine.table_of = self._table_of
        self.deltas = DeltaLog(self._engine)
        self._tables: dict[str, Table] = {}
        self.transactions = StagedTransactions(self._engine, symbols, self._tables, self._readable, shard)
        self.transactions.refuse = self._refuse_unlocked
        try:
            self._load(fence)
        except BaseException as e:
            self._engine.close()
            if isinstance(e, (ValueError, KeyError, TypeError, struct.error)):
                raise damaged(path, f"its catalog cannot be read ({e})") from e
            raise

    def _load(self, fence: int | None) -> None:
        engine = self._engine
        meta.check_format(engine, self.path, prepared.renew)
        meta.check_fence(engine, self.path, fence)
        self._recipe, definitions, self._last_table_id = meta.read_catalog(engine)
        self._version = max((n.version for n in meta.read_history(engine)), default=0)
        indexes = meta.read_indexes(engine)
        for definition in definitions:
            own = [i for id, i in indexes if id == definition.table_id]
            table = Table(definition, self._symbols, own)
            table.counters = meta.read_counters(engine, definition)
            self._tables[definition.name] = table
        self._dropped: list[Table] = []
        self._undeclared: list[tuple[Table, Index]] = []  # UNIQUE indexes to drop at the next `set_recipe`
        meta.sweep(engine, self._tables.values())
        self._done = meta.read_done(engine)
        self._groups = prepared.PreparedGroups.read(engine)
        for table in self._tables.values():
            if not {table.family, *(i.family for i in table.indexes)} <= set(engine.families()):
                raise damaged(self.path, f"table {table.name} has no data")
        resumed = bulk.finish_interrupted(engine, self._tables, self._groups.prepared)
        if resumed is not None:
            self._done[resumed.seq % meta.RECENT_RESULTS] = resumed
        self._as_stood = resumed is None  # are the rows the same as when the store was opened?
        last = max(self._done.values(), key=lambda d: (d.epoch, d.seq), default=Done(0, 0))
        self.last_epoch, self.last_seq = last.epoch, last.seq

    def applied(self) -> tuple[int, int]:
        """(epoch, seq) of the last commit."""
        return self.last_epoch, self.last_seq

    def written_since(self, stand: StorePosition) -> dict[str, Batch] | None:
        """By table, the rows written after a moment and before the store was opened; None if they are unknown."""
        return self.deltas.since(stand, self._tables.values()) if self._as_stood else None

    def stands(self) -> StorePosition | None:
        """The store's current moment; None if it is unknown whether the last commit is on disk."""
        return None if self._engine.in_doubt else self._engine.stand()

    def close(self) -> None:
        self._engine.close()

    # ---------------------------------------------------------------- the program
    def tables(self) -> dict[str, TableDef]:
        return {name: table.definition for name, table in self._tables.items()}

    def table(self, name: str) -> Table:
        found = self._tables.get(name)
        if found is None:
            raise unknown_table(name)
        return found

    def damage_of(self, name: str) -> SqlError | None:
        """The error of a table that cannot be used because a file of it or of its indexes is unreadable."""
        bad = self._engine.damage.families
        table = self._there(name) if bad else None
        families = () if table is None else (table.family, *(i.family for i in table.indexes))
        return next((self._engine.damage_error(f) for f in families if f in bad), None)

    def _there(self, name: str) -> Table | None:
        """The table, also if the change under way drops it."""
        return self._tables.get(name) or next((t for t in self._dropped if t.name == name), None)

    def _readable(self, name: str) -> Table:
        damage = self.damage_of(name)
        if damage is not None:
            raise damage
        return self.table(name)

    def _table_of(self, family: str) -> str:
        """The name of the table that owns a column family of rows or of an index."""
        for table in self._tables.values():
            if family in (table.family, *(i.family for i in table.indexes)):
                return table.name
        return family

    def create_table(self, table: TableDef) -> None:
        """Create a table, durable with the next `set_recipe`.

        A table that is built beside another one becomes durable when it gets its final name.  A table without an id
        (0) gets the next one.
        """
        if table.name in self._tables:
            raise table_exists(table.name)
        used = {t.definition.table_id for t in (*self._tables.values(), *self._dropped)}
        if table.table_id in used:
            raise ValueError(f"table id {table.table_id} of {table.name} is in use")
        definition = table if table.table_id else meta.with_id(table, self._last_table_id + 1)
        self._last_table_id = max(self._last_table_id, definition.table_id)
        indexes = [Index.of(definition, i.columns, i.unique, i.name) for i in definition.indexes]
        made = Table(definition, self._symbols, list({i.family: i for i in indexes}.values()))
        made.counters = made.counters._replace(auto_increment=definition.first_id - 1)
        for family in (made.family, *(i.family for i in made.indexes)):
            self._engine.create_family(family, ballast=table.is_passing)
        self._tables[table.name] = made

    def alter_table(self, table: TableDef, fits: bool = False) -> None:
        found = self._of_id(table)
        self.transactions.history.replaced(found.name)
        if not fits:
            refuse_unfit(found, table)
        if found.fitting is not None and not found.fitting.same(table):
            found.fitting.give_up()
        if table.name != found.name:
            if table.name in self._tables:
                raise table_exists(table.name)
            del self._tables[found.name]
            self._tables[table.name] = found
        if table.keyed != found.definition.keyed:
            self._dropped = switched(self._engine, found, table, self._dropped)
        else:
            self._undeclared = set_unique(found, table, self._undeclared)
        found.redefine(table)

    def begin_fitting(self, table: TableDef) -> Fitting:
        found = self._of_id(table)
        return Fitting(self._engine, found, table, self._symbols, lambda: self._readable(found.name))

    def entries(self, table: TableDef, columns: tuple[int, ...], what: str, given: tuple[bytes, ...]) -> object:
        return entries_of(self._of_id(table), table, columns, what, given)

    def _of_id(self, table: TableDef) -> Table:
        """The table with the same id, whatever its name."""
        found = next((t for t in self._tables.values() if t.definition.table_id == table.table_id), None)
        if found is None:
            raise unknown_table(table.name)
        return self._readable(found.name)

    def unbuilt(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for table in self._tables.values():
            building = {i.columns for i in table.unfinished}
            for i in table.definition.indexes:
                if table.access(i.columns) is None and i.columns not in building:
                    yield table.name, i.columns

    def drop_table(self, name: str) -> None:
        """Drop a table, durable with the next `set_recipe`; a crash before that restores it."""
        self.transactions.history.replaced(name)
        self._dropped.append(table := self.table(name))
        del self._tables[name]
        if table.fitting is not None:
            table.fitting.give_up()

    def keep_table(self, name: str) -> None:
        self._tables[name] = self._dropped.pop()

    def set_recipe(self, recipe: Sequence[str], epoch: int, seq: int, note: Note | None = None) -> None:
        if self._repeated(epoch, seq) is not None:
            return
        self._refuse_undecided()
        version, forgotten = self._version + (note is not None), list[str]()

        def fill(batch: WriteBatch) -> None:
            tables = [t for t in self._tables.values() if not t.definition.is_passing]
            meta.put_catalog(self._engine, batch, recipe, tables, self._last_table_id)
            for table in tables:
                meta.put_counters(self._engine, batch, table.definition, table.counters)  # the change may set them
            for table in self._dropped:
                meta.forget_table(self._engine, batch, table)
            forgotten.extend(self._put_dropped(batch, {t.name for t in self._dropped} - self._tables.keys()))
            for _, index in self._undeclared:
                meta.forget_index(self._engine, batch, index)
            if note is not None:
                meta.put_note(self._engine, batch, version, note)

        self._commit(fill, Done(epoch, seq), True, bool(self._dropped))
        self._recipe, self._version = tuple(recipe), version
        for name in forgotten:
            del self._groups.prepared[name]
        self._engine.condemn(*(index.family for _, index in self._undeclared))
        for table in self._dropped:
            self._engine.condemn(table.family, *(i.family for i in table.maintained))
            table.abandon()
        self._dropped, self._undeclared = [], []

    def recipe(self) -> tuple[str, ...]:
        return self._recipe

    def history(self) -> tuple[Noted, ...]:
        return meta.read_history(self._engine)

    def add_index(self, table: str, columns: tuple[int, ...], work: Work | None = None) -> None:
        build = self.begin_index(table, columns)
        if build is not None:
            build_whole(build, SCAN_ROWS, (lambda: None) if work is None else work.check)

    def begin_index(self, table: str, columns: tuple[int, ...], awaited: bool = False) -> IndexBuild | None:
        """Begin to build an index; None if a key, prefix or index already serves these columns."""
        if self.table(table).access(columns) is not None:
            return None
        into = self._readable(table)
        index = Index.of(into.definition, tuple(columns), name=into.declared(tuple(columns)))
        return IndexBuild(self._engine, into, index, lambda: self._readable(into.name), awaited)

    def trim_indexes(self, table: str, needed: Iterable[tuple[int, ...]], most: int) -> None:
        into = self.table(table)
        used = {into.way(columns) for columns in needed}
        idle = [i for i in into.indexes if not i.name and all(u is None or u[0] is not i for u in used)]
        for index in idle[: max(len(idle) - most, 0)]:
            batch = WriteBatch(raw_mode=True)
            meta.forget_index(self._engine, batch, index)
            self._engine.commit(batch)
            into.indexes.remove(index)
            self._engine.condemn(index.family)

    # ---------------------------------------------------------------- writing
    def write(
        self, statements: Sequence[Statement], epoch: int, seq: int, work: Work | None = None, group: str = "",
        forget: Sequence[str] = (), once: str = ""
    ) -> tuple[list[WriteResult], dict[str, Batch]]:
        if (repeated := self._repeated(epoch, seq)) is not None:
            return list(repeated.results), {}
        if self._groups.prepared:
            self._refuse_undecided({t for s in statements for t in tables_written(s)})
        if statements and isinstance(load := statements[0], Load):
            self._load_now(load, Done(epoch, seq, (result_of(load),)), (group, once), forget)
            return [result_of(load)], {}
        stages: dict[str, Stage] = {}
        results = self._run_all(statements, stages, work)
        if (group or once) and (failed := next((r for r in results if r.error is not None), None)) is not None:
            stages = {}  # all or nothing
            results = only_errors(results) if group else [failed for _ in statements]
            group = once = ""

        def fill(batch: WriteBatch) -> None:
            prepared.put_decided(self._engine, batch, (group, once), forget)

        committed = self._commit_stages(stages, Done(epoch, seq, tuple(results)), fill, bool(group or forget or once),
                                        all(isinstance(s, Delete | Clear) for s in statements))
        if isinstance(committed, SqlError):
            return [r if r.error else WriteResult(error=bare(committed)) for r in results], {}
        self._groups.decided -= set(forget)
        self._groups.decided |= {name for name in (group, once) if name}
        return results, committed

    def _commit_stages(self, stages: dict[str, Stage], done: Done, more: Callable[[WriteBatch], object], sync: bool,
                       ballast: bool) -> dict[str, Batch] | SqlError:
        """Commit the stages; return the net delta of each table, or the error.  more: adds entries to the batch."""
        def fill(batch: WriteBatch) -> None:
            for stage in stages.values():
                stage.fill(batch)
                if stage.keeps_counters or stage.counters != stage.table.counters:
                    meta.put_counters(self._engine, batch, stage.table.definition, stage.counters)
            more(batch)

        deltas = {name: delta for name, stage in stages.items() if len(delta := stage.delta())}
        try:
            self._commit(fill, done, sync or any(stage.effects for stage in stages.values()), ballast, stages.values(),
                         deltas)
        except SqlError as full:
            return full
        if self.transactions.history:
            self.transactions.history.record({name: stages[name].changed(delta) for name, delta in deltas.items()})
        for name, stage in stages.items():
            stage.table.counters = stage.counters
            if name in deltas:
                for told in (stage.table.fitting, *stage.table.awaited):
                    if told is not None:
                        told.written(partial(stage.changed, deltas[name]))
        return deltas

    def _run_all(self, statements: Sequence[Statement], stages: dict[str, Stage], work: Work | None,
                 guards: Guards | None = None) -> list[WriteResult]:
        """Run statements in order.  guards: makes the guard of each table; None: that of statements by themselves.

        No statement reads another's table, so only the order within a table matters.  Consecutive plain INSERTs into a
        table run as one.
        """
        results: list[WriteResult] = [WriteResult()] * len(statements)
        runs: dict[str, list[int]] = {}

        def flush(table: str) -> None:
            places = runs.pop(table, None)
            if places is None:
                return
            stage = self._stage(table, stages, work, guards)
            inserts = [s for s in (statements[i] for i in places) if isinstance(s, Insert)]
            if len(inserts) > 1:
                answers = run_inserts(stage, inserts, self._symbols)
            else:
                answers = [run(stage, statements[places[0]], self._symbols)]
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer

        for place, statement in enumerate(statements):
            table = statement.table
            if isinstance(statement, Staged):
                for waiting in list(runs):
                    flush(waiting)
                results[place] = self.transactions.merge(statement, lambda name: self._stage(name, stages, work))
                continue
            if table not in self._tables:
                results[place] = WriteResult(error=unknown_table(table))
                continue
            if (damage := self.damage_of(table)) is not None:
                results[place] = WriteResult(error=damage)
                continue
            before = runs.get(table)
            if before is not None and joins(statement, statements[before[0]]):
                before.append(place)
                continue
            flush(table)
            runs[table] = [place]
        for table in list(runs):
            flush(table)
        return results

    def _refuse_unlocked(self, table: str) -> None:
        """Refuse a transaction's statement if an earlier life prepared a group for the table, without locks."""
        if self._groups.prepared and not self.transactions.locks.held(next(iter(self._groups.prepared))):
            self._refuse_undecided({table})

    def replaced(self, table: str) -> None:
        """Note that rows were added in bulk: open snapshots cannot read the table any more."""
        self.transactions.history.replaced(table)

    def _stage(self, name: str, stages: dict[str, Stage], work: Work | None, guards: Guards | None = None) -> Stage:
        stage = stages.get(name)
        if stage is None:
            table = self._tables[name]
            stage = stages[name] = Stage(self._engine, table, table.counters, work, self._shard,
                                         guard=(guards or self.transactions.guard)(table))
        return stage

    # ---------------------------------------------------------------- reading
    def tidy(self) -> bool:
        return self._engine.tidy()

    def memory(self) -> int:
        return self._engine.memory_bytes()

    def hold_memory(self, limit: int) -> None:
        self._engine.hold(Memory.within(limit))

    def lookup(self, table: str, columns: tuple[int, ...], keys: Codes, texts: Texts = None, most: int = 0
               ) -> tuple[Batch, Codes]:
        """Look rows up as the protocol says; needs a key or index whose first columns these are (`add_index`)."""
        source = self._readable(table)
        index, order = lookups.access(source, columns)
        if not keys.shape[1]:
            return Batch.empty(source.width), np.empty(0, np.int64)
        starts = lookups.prefixes(source, columns, order, keys)
        if index is None and order == source.key:
            values, ordinals = lookups.present(self._engine.get(source.family, starts), np.arange(len(starts)))
        else:
            values, ordinals = lookups.under(self._engine, source, index, starts, most)
        some = texts if texts is None or len(order) == len(columns) else {*texts, *columns}
        rows, ordinals = lookups.agreeing(source, columns, order, keys, source.codes(values, some), ordinals)
        return Batch.of(rows), ordinals

    def begin_lookup(self, table: str, columns: tuple[int, ...], keys: Codes) -> lookups.KeyedScan:
        return lookups.KeyedScan(self._engine, self._readable(table), columns, keys)

    def finds(self, table: str, columns: tuple[int, ...]) -> bool:
        return self.table(table).way(columns) is not None

    def serves(self, table: str, columns: tuple[int, ...]) -> bool:
        return self.table(table).serving(columns) is not None

    def within(self, table: str, columns: tuple[int, ...], keys: Codes, rows: int) -> bool:
        """Count rows as the protocol says."""
        source = self._readable(table)
        index, order = lookups.access(source, columns)
        if order == (source.key if index is None else index.columns) and (index is None or index.unique):
            return int(keys.shape[1]) <= rows
        family = source.family if index is None else index.family
        for prefix in lookups.prefixes(source, columns, order, keys):
            rows -= self._engine.count_with_prefix(family, prefix, rows + 1)
            if rows < 0:
                return False
        return True

    def scan(self, table: str, after: bytes | None, rows: int, texts: Texts = None) -> tuple[Batch, bytes | None]:
        source = self._readable(table)
        start = None if after is None else after + b"\0"  # the least key above it
        if source.key:
            values = self._engine.values(source.family, rows, start)
            codes = source.codes(values, None if texts is None else {*texts, *source.key})
            return Batch.of(codes), source.keys(codes[:, -1:])[0] if len(values) == rows else None
        pairs = self._engine.items(source.family, rows, start)
        codes = source.codes([v for _, v in pairs], texts)
        return Batch.of(codes), pairs[-1][0] if len(pairs) == rows else None

    def values_between(self, table: str, column: int, low: int, high: int) -> Codes:
        """Return values as the protocol says, from the index keys alone: each begins with the column's 8 bytes."""
        return first_codes(list(self._index_keys(table, column, low, high)))

    def reach(self, table: str, column: int, low: int, high: int, rows: int, descending: bool) -> int:
        """Find the end of a range as the protocol says."""
        keys = list(islice(self._index_keys(table, column, low, high, descending), rows))
        if len(keys) < rows:
            return low if descending else high
        return int(first_codes(keys[-1:])[0])

    def _index_keys(self, table: str, column: int, low: int, high: int, descending: bool = False) -> Iterator[bytes]:
        """The keys of an index that begins with the column, from low to high."""
        source = self._readable(table)
        access = source.access((column,))
        if access is None:
            raise KeyError(f"no index of {table} on column {column}: add_index first")
        family = source.family if access[0] is None else access[0].family
        first, last = source.columns_key([codes_of((low, high))], (column,))
        return self._engine.keys_between(family, first, last, descending)

    def positions(self, table: str, rows: Batch) -> list[bytes] | None:
        source = self.table(table)
        return source.keys(rows.columns) if source.key else None

    def row_count(self, table: str) -> int:
        return self.table(table).counters.rows

    # ---------------------------------------------------------------- in bulk
    def load_needs(self, table: str) -> tuple[tuple[tuple[tuple[int, ...], bool], ...], int]:
        found = self.table(table)
        return tuple((i.columns, i.unique) for i in found.indexes), found.counters.auto_increment

    def flush_ahead(self, least_bytes: int) -> bool:
        return self._engine.flush_ahead(least_bytes)

    def checkpoint(self, path: str) -> None:
        """Make a consistent copy (hard links) at `path`, which must not exist; `storage.offline.snapshot` reads it.

        Raises SqlError while a load is staged, because the copy would lack its files.
        """
        self._refuse_staged()
        self._engine.checkpoint(path)
