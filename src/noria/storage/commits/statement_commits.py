"""Runs statements and commits their effects.

Keeps true: no effect is visible before its commit.  A failed statement has none; if statements belong together, none of
them has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rocksdict import WriteBatch

from noria.core.batch import Batch
from noria.core.errors import SqlError, definition_changed, unknown_table
from noria.core.statements import Clear, Delete, Insert, Load, Staged, Statement, WriteResult, tables_written
from noria.core.symbols import Symbols
from noria.dataflow.graph.request_limits import RequestLimits
from noria.storage.commits import prepared
from noria.storage.commits.committing import StoreCommits
from noria.storage.commits.load_commits import LoadCommits, result_of
from noria.storage.format.catalog import CommittedWrite
from noria.storage.rocks.engine import RocksEngine
from noria.storage.statements.stage import TableStage
from noria.storage.statements.writer import bare, joins, run, run_inserts
from noria.storage.tables import meta
from noria.storage.tables.open_tables import OpenTables
from noria.storage.tables.shards import Shard
from noria.storage.transactions.guard import Guards
from noria.storage.transactions.staging import StagedTransactions


def only_errors(results: Sequence[WriteResult]) -> list[WriteResult]:
    """The results of a failed all-or-nothing group: its errors; the other statements did nothing."""
    return [r if r.error is not None else WriteResult() for r in results]


class StatementCommits:
    """Runs statements and commits them.  shard: the rows that may be added (None: any)."""

    def __init__(self, engine: RocksEngine, tables: OpenTables, commits: StoreCommits, groups: prepared.PreparedGroups,
                 loads: LoadCommits, transactions: StagedTransactions, symbols: Symbols, shard: Shard | None):
        self._engine, self._tables, self._commits, self._groups = engine, tables, commits, groups
        self._loads, self._transactions, self._symbols, self._shard = loads, transactions, symbols, shard

    def write(
        self, statements: Sequence[Statement], epoch: int, seq: int, limits: RequestLimits | None = None,
        group: str = "", forget: Sequence[str] = (), idempotency_key: str = ""
    ) -> tuple[list[WriteResult], dict[str, Batch]]:
        if (repeated := self._commits.repeated(epoch, seq)) is not None:
            return list(repeated.results), {}
        if self._groups.prepared:
            checked = any(isinstance(s, Staged) and s.checks_reads for s in statements)
            self._groups.refuse_undecided(self._tables, None if checked else {
                t for s in statements for t in tables_written(s)})
        if statements and isinstance(load := statements[0], Load):
            self._loads.load_now(load, CommittedWrite(epoch, seq, (result_of(load),)), (group, idempotency_key), forget)
            return [result_of(load)], {}
        stages: dict[str, TableStage] = {}
        results = self.run_all(statements, stages, limits)
        if (group or idempotency_key) and (failed := next((r for r in results if r.error is not None),
                                                          None)) is not None:
            stages = {}  # all or nothing
            results = only_errors(results) if group else [failed for _ in statements]
            group = idempotency_key = ""

        def fill(batch: WriteBatch) -> None:
            prepared.put_decided(self._engine, batch, (group, idempotency_key), forget)

        committed = self.commit_stages(stages, CommittedWrite(epoch, seq, tuple(results)), fill,
                                       bool(group or forget or idempotency_key),
                                       all(isinstance(s, Delete | Clear) for s in statements))
        if isinstance(committed, SqlError):
            return [r if r.error else WriteResult(error=bare(committed)) for r in results], {}
        self._groups.decided -= set(forget)
        self._groups.decided |= {name for name in (group, idempotency_key) if name}
        return results, committed

    def commit_stages(self, stages: dict[str, TableStage], done: CommittedWrite, more: Callable[[WriteBatch], object],
                      sync: bool, ballast: bool) -> dict[str, Batch] | SqlError:
        """Commit the stages; return the net delta of each table, or the error.  more: adds entries to the batch."""
        def fill(batch: WriteBatch) -> None:
            for stage in stages.values():
                stage.fill(batch)
                if stage.keeps_counters or stage.counters != stage.table.counters:
                    meta.put_counters(self._engine, batch, stage.table.definition, stage.counters)
            more(batch)

        deltas = {name: delta for name, stage in stages.items() if len(delta := stage.delta())}
        try:
            self._commits.commit(fill, done, sync or any(stage.effects for stage in stages.values()), ballast,
                                 stages.values(), deltas)
        except SqlError as full:
            return full
        if self._transactions.history:
            self._transactions.history.record({name: stages[name].changed(delta) for name, delta in deltas.items()})
        for name, stage in stages.items():
            stage.table.counters = stage.counters
            if name in deltas:
                for observer in (stage.table.fitting, *stage.table.awaited):
                    if observer is not None:
                        observer.written(partial(stage.changed, deltas[name]))
        return deltas

    def run_all(self, statements: Sequence[Statement], stages: dict[str, TableStage], limits: RequestLimits | None,
                guards: Guards | None = None) -> list[WriteResult]:
        """Run statements in order.  guards: makes the guard of each table; None: that of statements by themselves.

        Only an INSERT with parents reads other tables, and what was written to them before it runs before it.  So else
        only the order within a table matters.  Consecutive plain INSERTs into a table run as one.
        """
        results: list[WriteResult] = [WriteResult()] * len(statements)
        runs: dict[str, list[int]] = {}

        def flush(table: str) -> None:
            places = runs.pop(table, None)
            if places is None:
                return
            stage = self._stage(table, stages, limits, guards)
            inserts = [s for s in (statements[i] for i in places) if isinstance(s, Insert)]
            if inserts and inserts[0].parents:
                stage.parents = lambda name: self._parent(name, stages, limits, guards)
            if len(inserts) > 1:
                answers = run_inserts(stage, inserts, self._symbols)
            else:
                answers = [run(stage, statements[places[0]], self._symbols)]
            stage.parents = None
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer

        for place, statement in enumerate(statements):
            table = statement.table
            if isinstance(statement, Staged):
                for waiting in list(runs):
                    flush(waiting)
                results[place] = self._transactions.merge(
                    statement, lambda name: self._stage(name, stages, limits), stages)
                continue
            if table not in self._tables.by_name:
                results[place] = WriteResult(error=unknown_table(table))
                continue
            if (damage := self._tables.damage_of(table)) is not None:
                results[place] = WriteResult(error=damage)
                continue
            if isinstance(statement, Insert):
                for key in statement.parents:
                    if key.parent != table:
                        flush(key.parent)
            before = runs.get(table)
            if before is not None and joins(statement, statements[before[0]]):
                before.append(place)
                continue
            flush(table)
            runs[table] = [place]
        for table in list(runs):
            flush(table)
        return results

    def _parent(self, name: str, stages: dict[str, TableStage], limits: RequestLimits | None, guards: Guards | None
                ) -> TableStage:
        if name not in self._tables.by_name:
            raise definition_changed()
        if (damage := self._tables.damage_of(name)) is not None:
            raise damage
        return self._stage(name, stages, limits, guards)

    def _stage(self, name: str, stages: dict[str, TableStage], limits: RequestLimits | None,
               guards: Guards | None = None) -> TableStage:
        stage = stages.get(name)
        if stage is None:
            table = self._tables.by_name[name]
            stage = stages[name] = TableStage(self._engine, table, table.counters, limits, self._shard,
                                              guard=(guards or self._transactions.guard)(table))
        return stage
