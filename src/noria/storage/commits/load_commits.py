"""A store's part of bulk loads: ingested at once, or staged here until the group of workers is decided.

Keeps true: a load is stored whole or not at all, and on all workers or on none.  Staged files stay until the
coordinator's store reports the decision, whichever process dies meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocksdict import WriteBatch

from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.statements import Load, WriteResult
from noria.storage.commits import prepared, sst_ingest
from noria.storage.commits.committing import StoreCommits
from noria.storage.format.catalog import CommittedWrite
from noria.storage.rocks.engine import RocksEngine
from noria.storage.rocks.errors import damaged
from noria.storage.tables.open_tables import OpenTables
from noria.storage.transactions.history import History


class LoadCommits:
    """Commits that ingest files."""

    def __init__(self, engine: RocksEngine, tables: OpenTables, commits: StoreCommits, groups: prepared.PreparedGroups,
                 history: History):
        self._engine, self._tables, self._commits, self._groups = engine, tables, commits, groups
        self._history = history

    def check_ingest(self, table: str, files: dict[str, list[str]], rows: int,
                     others: dict[str, list[str]] | None = None) -> None:
        """Raise the SqlError that `ingest` would raise; change nothing.

        others: files of other workers with entries of UNIQUE indexes, whose keys must not be stored here either.
        """
        sst_ingest.check(self._engine, self._tables.readable(table), files, rows, others)

    def ingest(
        self, table: str, files: dict[str, list[str]], rows: int, auto_increment: int, epoch: int, seq: int,
        idempotency_key: str = ""
    ) -> None:
        """Ingest files of `storage.tables.sst`, all or none.  files: family -> paths.

        Raises SqlError 1062 if they repeat a stored key.  idempotency_key: a name under which the load is remembered.
        """
        if self._commits.repeated(epoch, seq) is None:
            self._groups.refuse_undecided(self._tables)
            load = Load(table, tuple((f, tuple(paths)) for f, paths in files.items()), rows, auto_increment)
            self.load_now(load, CommittedWrite(epoch, seq), (idempotency_key,), ())

    def loads(self, group: str) -> tuple[str, ...]:
        """The tables for which files are staged under this name."""
        tried = self._groups.prepared.get(group)
        return tuple(s.table for s in tried.statements if isinstance(s, Load)) if tried is not None else ()

    def refuse_staged(self) -> None:
        for group in self._groups.prepared:
            for table in self.loads(group):
                raise SqlError(*UNKNOWN_ERROR, f"a load into {table} is staged in {self._engine.path} and not decided: "
                                               "start the server, which completes or forgets it, and stop it again")

    # ---------------------------------------------------------------- parts of a group
    def staged(self, load: Load, group: str) -> Load:
        """The load with its files in a directory of the group.  Raises SqlError if it cannot be ingested."""
        files = sst_ingest.stage(self._engine, self._tables.readable(load.table), load, group)
        return load._replace(files=tuple((f, tuple(names)) for f, names in files.items()))

    def load_now(self, load: Load, done: CommittedWrite, names: tuple[str, ...], forget: Sequence[str]) -> None:
        """Ingest a load as the coordinator, or a load of one worker.

        Its commit is the decision, which is remembered under these names.
        """
        def decided(batch: WriteBatch) -> None:
            prepared.put_decided(self._engine, batch, names, forget)

        self._take(load, sst_ingest.stage(self._engine, self._tables.readable(load.table), load), done, more=decided)
        self._groups.decided -= set(forget)
        self._groups.decided |= {name for name in names if name}

    def load_staged(self, load: Load, done: CommittedWrite, group: str) -> None:
        """Ingest what was staged for the group.  Raises StoreDamaged if one of its files is gone."""
        if missing := sst_ingest.missing(self._engine, load, group):
            raise damaged(self._engine.path, f"{missing}, staged for a load into {load.table}, is gone")
        def forgotten(batch: WriteBatch) -> None:
            prepared.forget_prepared(self._engine, batch, group)

        self._take(load, {f: list(names) for f, names in load.files}, done, group, forgotten)
        del self._groups.prepared[group]

    def _take(self, load: Load, staged: dict[str, list[str]], done: CommittedWrite, group: str = "",
              more: sst_ingest.More = sst_ingest.nothing) -> None:
        into = self._tables.readable(load.table)
        sst_ingest.take(self._engine, into, load, staged, done, group, more)
        if into.fitting is not None:
            into.fitting.restart()
        self._history.replaced(load.table)
        self._commits.ingested(done)


def result_of(load: Load) -> WriteResult:
    return WriteResult(affected=load.rows)
