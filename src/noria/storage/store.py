"""The base tables of one worker's shard, on RocksDB (section 6.1 of the paper; design/decisions.md, 8).

Keeps true:

* ACK-DURABLE: `write` returns after one synced commit.  It holds the statements' whole changes, the tables' counters,
  and (epoch, seq) with the results.  So a resend returns the first results and changes nothing.
* A failed statement changes nothing.  Without space every statement of the call fails and the store continues.
* `set_recipe` writes the catalog together with the statements it follows from.  Families outside the catalog are
  leftovers of a crash; opening the store drops them.
"""

from __future__ import annotations

import struct

from noria.core.batch import Batch
from noria.core.symbols import Symbols
from noria.storage.commits import prepared, sst_ingest
from noria.storage.commits.committing import StoreCommits
from noria.storage.commits.delta_log import DeltaLog
from noria.storage.commits.load_commits import LoadCommits
from noria.storage.commits.statement_commits import StatementCommits
from noria.storage.commits.two_phase import Participant
from noria.storage.online.definitions import TableDefinitions
from noria.storage.rocks.engine import RocksEngine
from noria.storage.rocks.errors import damaged
from noria.storage.rocks.options import RocksMemory
from noria.storage.rocks.store_position import StorePosition
from noria.storage.tables import meta
from noria.storage.tables.open_tables import OpenTables
from noria.storage.tables.shards import Shard
from noria.storage.tables.table_reads import TableReads
from noria.storage.transactions.staging import StagedTransactions


class RocksStore:
    """Implements dataflow.graph.protocols.BaseStore.

    Its methods are those of its parts, bound here, so that a call of one costs no other call.
    """

    def __init__(self, path: str, symbols: Symbols, fence: int | None = None, memory: RocksMemory | None = None,
                 shard: Shard | None = None):
        """Open the data directory, or create it.  Raises StoreError if it cannot be used.

        fence: the owner's epoch; a store that was opened with a later one rejects it (StoreFenced).  shard: the rows
        that may be added (None: any).
        """
        self.path, self._symbols = path, symbols
        self.engine = RocksEngine(path, memory or RocksMemory())
        self.deltas, self._tables = DeltaLog(self.engine), OpenTables(self.engine)
        self.engine.table_of = self._tables.table_of
        try:
            self._open(fence, shard)
        except BaseException as e:
            self.engine.close()
            if isinstance(e, (ValueError, KeyError, TypeError, struct.error)):
                raise damaged(path, f"its catalog cannot be read ({e})") from e
            raise

    def _open(self, fence: int | None, shard: Shard | None) -> None:
        """Read what is stored, complete an interrupted load, and build the parts."""
        engine, tables, symbols = self.engine, self._tables, self._symbols
        meta.check_format(engine, self.path, prepared.renew)
        meta.check_fence(engine, self.path, fence)
        recipe, known, last_table_id = meta.read_catalog(engine)
        version = max((n.version for n in meta.read_history(engine)), default=0)
        tables.read(known, symbols)
        meta.sweep(engine, tables.by_name.values())
        done = meta.read_done(engine)
        self._groups = groups = prepared.PreparedGroups.read(engine)
        tables.check_data(self.path)
        resumed = sst_ingest.finish_interrupted(engine, tables.by_name, groups.prepared)
        if resumed is not None:
            done[resumed.seq % meta.RECENT_RESULTS] = resumed
        self._as_opened = resumed is None  # are the rows the same as when the store was opened?

        self.transactions = staged = StagedTransactions(engine, symbols, tables.by_name, tables.readable, shard)
        staged.refuse = lambda name: groups.refuse_unlocked(tables, name)
        commits = StoreCommits(engine, self.deltas, done)
        engine.reopened = commits.resolve_refused
        self._loads = loads = LoadCommits(engine, tables, commits, groups, staged.history)
        statements = StatementCommits(engine, tables, commits, groups, loads, staged, symbols, shard)
        participant = Participant(engine, tables, commits, groups, loads, statements, staged, symbols)
        definitions = TableDefinitions(engine, tables, commits, groups, symbols, recipe, version, last_table_id,
                                       staged.history)
        reads = TableReads(engine, tables)

        self.applied, self.write, self.groups = commits.applied, statements.write, groups.listed
        self.check_ingest, self.ingest, self.loads = loads.check_ingest, loads.ingest, loads.loads
        self.prepare, self.decide = participant.prepare, participant.decide
        self.predict_effect, self.find_conflicts = participant.predict_effect, participant.find_conflicts
        self.check_unique = participant.check_unique
        self.tables, self.table, self.damage_of = tables.definitions, tables.table, tables.damage_of
        self.create_table, self.alter_table = definitions.create_table, definitions.alter_table
        self.drop_table, self.keep_table = definitions.drop_table, definitions.keep_table
        self.begin_fitting, self.entries = definitions.begin_fitting, definitions.entries
        self.set_recipe, self.recipe, self.history = definitions.set_recipe, definitions.recipe, definitions.history
        self.add_index, self.begin_index = definitions.add_index, definitions.begin_index
        self.trim_indexes, self.unbuilt = definitions.trim_indexes, definitions.unbuilt
        self.lookup, self.begin_lookup, self.scan = reads.lookup, reads.begin_lookup, reads.scan
        self.finds, self.serves, self.within = reads.finds, reads.serves, reads.within
        self.values_between, self.reach = reads.values_between, reads.reach
        self.positions, self.row_count = reads.positions, reads.row_count
        self.tidy, self.memory, self.flush_ahead = engine.tidy, engine.memory_bytes, engine.flush_ahead
        self.close = engine.close

    def written_since(self, position: StorePosition) -> dict[str, Batch] | None:
        """By table, the rows written after a moment (see `DeltaLog.since`); None if they are unknown."""
        return self.deltas.since(position, self._tables.by_name.values()) if self._as_opened else None

    def position(self) -> StorePosition | None:
        """The store's current moment; None if it is unknown whether the last commit is on disk."""
        return None if self.engine.in_doubt else self.engine.position()

    def hold_memory(self, limit: int) -> None:
        self.engine.hold(RocksMemory.within(limit))

    def load_needs(self, table: str) -> tuple[tuple[tuple[tuple[int, ...], bool], ...], int]:
        found = self.table(table)
        return tuple((i.columns, i.unique) for i in found.indexes), found.counters.auto_increment

    def checkpoint(self, path: str) -> None:
        """Make a consistent copy (hard links) at `path`, which must not exist; `storage.offline.snapshot` reads it.

        Raises SqlError while a load is staged, because the copy would lack its files.
        """
        self._loads.refuse_staged()
        self.engine.checkpoint(path)
