"""A store's part of statements over several shards: tried and kept until the group is decided, or only evaluated.

Keeps true: a decided group has the effects of its trial, because nothing else writes its tables in between.  A group
is prepared only if the disk has room for its writes; its commit may use the ballast if others took that room.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from rocksdict import WriteBatch

from noria.core.batch import Batch
from noria.core.errors import InvariantViolation, SqlError
from noria.core.statements import (
    Insert,
    Load,
    Staged,
    StagedPart,
    Statement,
    StatementEffect,
    WriteResult,
)
from noria.core.symbols import Symbols
from noria.dataflow.graph.request_limits import RequestLimits
from noria.storage.commits import prepared, sst_ingest
from noria.storage.commits.committing import StoreCommits
from noria.storage.commits.load_commits import LoadCommits, result_of
from noria.storage.commits.statement_commits import StatementCommits, only_errors
from noria.storage.format.catalog import CommittedWrite
from noria.storage.rocks.engine import RocksEngine
from noria.storage.statements import row_moves
from noria.storage.statements.stage import TableStage
from noria.storage.statements.writer import bare
from noria.storage.tables.open_tables import OpenTables
from noria.storage.tables.table import StoredTable
from noria.storage.transactions.guard import Guard, no_guard
from noria.storage.transactions.staging import StagedTransactions


def _does(result: WriteResult) -> WriteResult:
    """A result without ids, which an earlier version did not record when it prepared the group."""
    return result._replace(last_insert_id=0, row_id=0)


class Participant:
    """Prepares, decides and evaluates statements that concern several workers."""

    def __init__(self, engine: RocksEngine, tables: OpenTables, commits: StoreCommits, groups: prepared.PreparedGroups,
                 loads: LoadCommits, statements: StatementCommits, transactions: StagedTransactions,
                 symbols: Symbols):
        self._engine, self._tables, self._commits, self._groups = engine, tables, commits, groups
        self._loads, self._statements, self._symbols = loads, statements, symbols
        self._transactions = transactions

    def prepare(self, statements: Sequence[Statement], group: str, coordinator: int, epoch: int, seq: int,
                limits: RequestLimits | None = None) -> list[WriteResult]:
        if (repeated := self._commits.repeated(epoch, seq)) is not None:
            return list(repeated.results)
        self._groups.refuse_undecided(self._tables)
        results, kept, nbytes = self._tried(statements, group, limits)
        failed = next((r for r in results if r.error is not None), None)
        if failed is not None:
            results = only_errors(results)
        tried = prepared.Group(coordinator, kept, tuple(results))
        stored = failed is None and bool(kept)  # else it changes nothing here: its reads were checked

        def fill(batch: WriteBatch) -> None:
            if stored:
                prepared.put_prepared(self._engine, batch, group, tried)

        try:
            if stored:
                self._engine.make_ready(nbytes)
            self._commits.commit(fill, CommittedWrite(epoch, seq, tuple(results)), stored)
        except SqlError as full:
            self._transactions.locks.release(group)  # nobody can wait for them yet
            return [WriteResult(error=bare(full)) for _ in statements]
        if stored:
            self._groups.prepared[group] = tried
        return results

    def _tried(self, statements: Sequence[Statement], group: str, limits: RequestLimits | None
               ) -> tuple[list[WriteResult], tuple[Statement, ...], int]:
        """Try the statements: their results, the statements to keep, and how many bytes they would write."""
        if isinstance(staged := statements[0], Staged):
            return self._tried_moves(staged)
        if not isinstance(load := statements[0], Load):
            stages: dict[str, TableStage] = {}
            guards: dict[str, Guard] = {}

            def guard(table: StoredTable) -> Guard:
                return guards.setdefault(table.name, Guard(self._transactions.locks, group, table))

            results = self._statements.run_all(statements, stages, limits, guard)
            if all(r.error is None for r in results):
                for each in guards.values():
                    each.take()
            return results, tuple(statements), sum(stage.nbytes for stage in stages.values())
        try:
            return [result_of(load)], (self._loads.staged(load, group),), 0
        except SqlError as error:
            return [WriteResult(error=bare(error))], (), 0

    def _tried_moves(self, staged: Staged) -> tuple[list[WriteResult], tuple[Statement, ...], int]:
        """Try what a transaction has staged here, which is kept as rows.  The transaction keeps its locks."""
        try:
            moves = self._transactions.moves(staged)
        except SqlError as error:
            return [WriteResult(error=bare(error))], (), 0
        stages: dict[str, TableStage] = {}
        results = self._statements.run_all(moves, stages, None, no_guard)
        return results, moves, sum(stage.nbytes for stage in stages.values())

    def decide(self, group: str, commit: bool, epoch: int, seq: int) -> tuple[list[WriteResult], dict[str, Batch]]:
        if (repeated := self._commits.repeated(epoch, seq)) is not None:
            return list(repeated.results), {}
        stages: dict[str, TableStage] = {}
        results: list[WriteResult] = []
        tried = self._groups.prepared.get(group)
        load = tried.statements[0] if tried is not None and tried.statements else None
        if isinstance(load, Load) and commit:
            try:
                self._loads.load_staged(load, CommittedWrite(epoch, seq, (result_of(load),)), group)
            except SqlError as full:
                return [WriteResult(error=bare(full))], {}
            return [result_of(load)], {}
        if tried is not None and commit:
            results = self._statements.run_all(tried.statements, stages, None, no_guard)
            if any(r.error is not None for r in results):  # a file has become unreadable
                return results, {}
            if list(map(_does, results)) != list(map(_does, tried.results)):
                raise InvariantViolation("ACK-DURABLE", f"group {group} did {results} when it was committed, and "
                                                        f"{list(tried.results)} when it was prepared")
        committed = self._statements.commit_stages(
            stages, CommittedWrite(epoch, seq, tuple(results)),
            lambda batch: prepared.forget_prepared(self._engine, batch, group), tried is not None, ballast=True)
        if isinstance(committed, SqlError):
            return [WriteResult(error=bare(committed)) for _ in results], {}
        self._groups.prepared.pop(group, None)
        if isinstance(load, Load):
            sst_ingest.unstage(self._engine, group)
        return results, committed

    def predict_effect(self, statement: Statement, rows: tuple[bytes, ...], workers: int,
                       limits: RequestLimits | None = None, within: StagedPart | None = None) -> StatementEffect:
        with self._looking(statement.table, limits, within) as stage:
            if within is not None:
                self._transactions.note_where(within.transaction, statement)
            return row_moves.work_out(stage, statement, rows, self._symbols, workers)

    def find_conflicts(self, statement: Insert, limits: RequestLimits | None = None, within: StagedPart | None = None
                       ) -> tuple[bytes, ...]:
        with self._looking(statement.table, limits, within, True) as stage:
            return row_moves.met(stage, statement, self._symbols)

    def check_unique(self, table: str, removed: tuple[bytes, ...], added: tuple[bytes, ...],
                     within: StagedPart | None = None) -> None:
        with self._looking(table, None, within, True) as stage:
            row_moves.check_unique(stage, removed, added)

    def _looking(self, table: str, limits: RequestLimits | None, within: StagedPart | None, reserves: bool = False
                 ) -> AbstractContextManager[TableStage]:
        """A stage for rows of any worker, which is never committed."""
        if within is not None:
            return self._transactions.looking(within, table, limits, reserves)
        self._groups.refuse_undecided(self._tables)
        found = self._tables.readable(table)
        guard = self._transactions.guard(found)
        return nullcontext(TableStage(self._engine, found, found.counters, limits, guard=guard))
