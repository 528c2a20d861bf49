"""A store's part of statements over several shards: tried and kept until the group is decided, or only evaluated.

Keeps true: a decided group has the effects of its trial, because nothing else writes its tables in between.  A group
is prepared only if the disk has room for its writes; its commit may use the ballast if others took that room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rocksdict import WriteBatch

from noria.core.batch import Batch
from noria.core.errors import InvariantViolation, SqlError
from noria.core.statements import Insert, Load, Staged, Statement, WorkedOut, WriteResult
from noria.core.symbols import Symbols
from noria.dataflow.graph.work import Work
from noria.storage.commits import bulk, prepared
from noria.storage.commits.loading import LoadingStore, result_of
from noria.storage.format.catalog import Done
from noria.storage.statements import moving
from noria.storage.statements.stage import Stage
from noria.storage.statements.writer import bare
from noria.storage.tables.table import Table
from noria.storage.transactions.guard import Guard, Guards, no_guard
from noria.storage.transactions.staging import StagedTransactions


def only_errors(results: Sequence[WriteResult]) -> list[WriteResult]:
    """The results of a failed all-or-nothing group: its errors; the other statements did nothing."""
    return [r if r.error is not None else WriteResult() for r in results]


def _does(result: WriteResult) -> WriteResult:
    """A result without ids, which an earlier version did not record when it prepared the group."""
    return result._replace(last_insert_id=0, row_id=0)


class TwoPhaseStore(LoadingStore):
    """Prepares, decides and evaluates statements that concern several workers."""

    _groups: prepared.PreparedGroups
    _symbols: Symbols

    transactions: StagedTransactions

    def _run_all(self, statements: Sequence[Statement], stages: dict[str, Stage], work: Work | None,
                 guards: Guards | None = None) -> list[WriteResult]:
        raise NotImplementedError

    def _commit_stages(self, stages: dict[str, Stage], done: Done, more: Callable[[WriteBatch], object], sync: bool,
                       ballast: bool) -> dict[str, Batch] | SqlError:
        raise NotImplementedError

    def _stage(self, name: str, stages: dict[str, Stage], work: Work | None, guards: Guards | None = None) -> Stage:
        raise NotImplementedError

    def _readable(self, name: str) -> Table:
        raise NotImplementedError

    def damage_of(self, name: str) -> SqlError | None:
        raise NotImplementedError

    def _there(self, name: str) -> Table | None:
        raise NotImplementedError

    def prepare(self, statements: Sequence[Statement], group: str, coordinator: int, epoch: int, seq: int,
                work: Work | None = None) -> list[WriteResult]:
        if (repeated := self._repeated(epoch, seq)) is not None:
            return list(repeated.results)
        self._refuse_undecided()
        results, kept, nbytes = self._tried(statements, group, work)
        failed = next((r for r in results if r.error is not None), None)
        if failed is not None:
            results = only_errors(results)
        tried = prepared.Group(coordinator, kept, tuple(results))

        def fill(batch: WriteBatch) -> None:
            if failed is None:
                prepared.put_prepared(self._engine, batch, group, tried)

        try:
            if failed is None:
                self._engine.make_ready(nbytes)
            self._commit(fill, Done(epoch, seq, tuple(results)), failed is None)
        except SqlError as full:
            return [WriteResult(error=bare(full)) for _ in statements]
        if failed is None:
            self._groups.prepared[group] = tried
        return results

    def _tried(self, statements: Sequence[Statement], group: str, work: Work | None
               ) -> tuple[list[WriteResult], tuple[Statement, ...], int]:
        """Try the statements: their results, the statements to keep, and how many bytes they would write."""
        if isinstance(staged := statements[0], Staged):
            return self._tried_moves(staged)
        if not isinstance(load := statements[0], Load):
            stages: dict[str, Stage] = {}
            guards: dict[str, Guard] = {}

            def guard(table: Table) -> Guard:
                return guards.setdefault(table.name, Guard(self.transactions.locks, group, table))

            results = self._run_all(statements, stages, work, guard)
            if all(r.error is None for r in results):
                for each in guards.values():
                    each.take()
            return results, tuple(statements), sum(stage.nbytes for stage in stages.values())
        try:
            return [result_of(load)], (self._staged(load, group),), 0
        except SqlError as error:
            return [WriteResult(error=bare(error))], (), 0

    def _tried_moves(self, staged: Staged) -> tuple[list[WriteResult], tuple[Statement, ...], int]:
        """Try what a transaction has staged here, which is kept as rows.  The transaction keeps its locks."""
        try:
            moves = self.transactions.moves(staged)
        except SqlError as error:
            return [WriteResult(error=bare(error))], (), 0
        stages: dict[str, Stage] = {}
        results = self._run_all(moves, stages, None, no_guard)
        return results, moves, sum(stage.nbytes for stage in stages.values())

    def decide(self, group: str, commit: bool, epoch: int, seq: int) -> tuple[list[WriteResult], dict[str, Batch]]:
        if (repeated := self._repeated(epoch, seq)) is not None:
            return list(repeated.results), {}
        stages: dict[str, Stage] = {}
        results: list[WriteResult] = []
        tried = self._groups.prepared.get(group)
        load = tried.statements[0] if tried is not None else None
        if isinstance(load, Load) and commit:
            try:
                self._load_staged(load, Done(epoch, seq, (result_of(load),)), group)
            except SqlError as full:
                return [WriteResult(error=bare(full))], {}
            return [result_of(load)], {}
        if tried is not None and commit:
            results = self._run_all(tried.statements, stages, None, no_guard)
            if any(r.error is not None for r in results):  # a file has become unreadable
                return results, {}
            if list(map(_does, results)) != list(map(_does, tried.results)):
                raise InvariantViolation("ACK-DURABLE", f"group {group} did {results} when it was committed, and "
                                                        f"{list(tried.results)} when it was prepared")
        committed = self._commit_stages(
            stages, Done(epoch, seq, tuple(results)),
            lambda batch: prepared.forget_prepared(self._engine, batch, group), tried is not None, ballast=True)
        if isinstance(committed, SqlError):
            return [WriteResult(error=bare(committed)) for _ in results], {}
        self._groups.prepared.pop(group, None)
        if isinstance(load, Load):
            bulk.unstage(self._engine, group)
        return results, committed

    def work_out(self, statement: Statement, rows: tuple[bytes, ...], workers: int, work: Work | None = None
                 ) -> WorkedOut:
        return moving.work_out(self._looking(statement.table, work), statement, rows, self._symbols, workers)

    def met(self, statement: Insert, work: Work | None = None) -> tuple[bytes, ...]:
        return moving.met(self._looking(statement.table, work), statement, self._symbols)

    def check_unique(self, table: str, gone: tuple[bytes, ...], came: tuple[bytes, ...]) -> None:
        moving.check_unique(self._looking(table), gone, came)

    def _looking(self, table: str, work: Work | None = None) -> Stage:
        """A stage for rows of any worker, which is never committed."""
        self._refuse_undecided()
        found = self._readable(table)
        return Stage(self._engine, found, found.counters, work)

    def _refuse_undecided(self, tables: Collection[str] | None = None) -> None:
        """Raise an error if a prepared group concerns the tables.

        tables: those to be written; None: all.  A group that a damaged file blocks is ignored: nothing can write its
        table anyway.
        """
        for name, group in self._groups.prepared.items():
            if tables is not None and all(s.table not in tables for s in group.statements):
                continue
            if all(self._there(s.table) is not None and self.damage_of(s.table) is None for s in group.statements):
                raise prepared.undecided(name)

    def _put_dropped(self, batch: WriteBatch, tables: Collection[str]) -> list[str]:
        """Forget the groups that concern only these dropped tables; return their names."""
        gone = [n for n, g in self._groups.prepared.items() if all(s.table in tables for s in g.statements)]
        for name in gone:
            prepared.forget_prepared(self._engine, batch, name)
        return gone

    def groups(self) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        return (tuple((name, g.coordinator) for name, g in self._groups.prepared.items()),
                tuple(sorted(self._groups.decided)))
