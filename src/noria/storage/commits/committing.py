"""One commit of a store: exactly once by (epoch, seq), and the handling of a full disk.

Keeps true: a resent change gets its first results.  A failed commit is not stored, or the store reports that only a
restart can decide whether it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from rocksdict import WriteBatch

from noria.core.batch import Batch
from noria.core.errors import InvariantViolation, SqlError
from noria.storage.commits.delta_log import DeltaLog
from noria.storage.format.catalog import CommittedWrite
from noria.storage.rocks.engine import RocksEngine
from noria.storage.rocks.errors import StoreError, StoreFenced
from noria.storage.statements.stage import TableStage
from noria.storage.tables import meta


class StoreCommits:
    """Commits batches and remembers their results.

    done: recent results, by slot.  last_epoch, last_seq: those of the last commit.
    """

    def __init__(self, engine: RocksEngine, deltas: DeltaLog, done: dict[int, CommittedWrite]):
        self._engine, self._deltas, self._done = engine, deltas, done
        self._refused: CommittedWrite | None = None  # the write that failed because the disk was full
        last = max(done.values(), key=lambda d: (d.epoch, d.seq), default=CommittedWrite(0, 0))
        self.last_epoch, self.last_seq = last.epoch, last.seq

    def applied(self) -> tuple[int, int]:
        """(epoch, seq) of the last commit."""
        return self.last_epoch, self.last_seq

    def repeated(self, epoch: int, seq: int) -> CommittedWrite | None:
        """The result of (epoch, seq) if it was committed before, else None.  Raises StoreFenced for an old epoch."""
        if (epoch, seq) > (self.last_epoch, self.last_seq):
            return None
        if epoch < self.last_epoch:
            raise StoreFenced(f"a write of epoch {epoch} came after epoch {self.last_epoch} began")
        done = self._done.get(seq % meta.RECENT_RESULTS)
        if done is None or (done.epoch, done.seq) != (epoch, seq):
            raise InvariantViolation("ACK-DURABLE", f"write {epoch}.{seq} comes again, but the last is "
                                     f"{self.last_epoch}.{self.last_seq} and its results are not kept")
        return done

    def commit(self, fill: Callable[[WriteBatch], object], done: CommittedWrite, sync: bool, ballast: bool = False,
               stages: Collection[TableStage] = (), deltas: Mapping[str, Batch] | None = None) -> None:
        """Commit what `fill` adds to a batch, as (epoch, seq).  stages, deltas: the rows that it changes."""
        engine, batch = self._engine, self._batch(fill, done)
        self._deltas.record(batch, stages, deltas or {})
        try:
            engine.commit(batch, sync, ballast)
        except SqlError:
            if not engine.in_doubt:
                raise
            self._commit_again(fill, done, ballast)
        self._done[done.seq % meta.RECENT_RESULTS] = done
        self.last_epoch, self.last_seq = done.epoch, done.seq

    def ingested(self, done: CommittedWrite) -> None:
        """Remember the result of a load, which was committed with its files."""
        self._done[done.seq % meta.RECENT_RESULTS] = done
        self.last_epoch, self.last_seq = done.epoch, done.seq

    def _batch(self, fill: Callable[[WriteBatch], object], done: CommittedWrite) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        fill(batch)
        meta.put_done(self._engine, batch, done)
        return batch

    def _commit_again(self, fill: Callable[[WriteBatch], object], done: CommittedWrite, ballast: bool) -> None:
        """Retry a commit that a full disk refused, if there is room now or the ballast may be used.

        The commit is written again only if it is not on disk already.
        """
        engine = self._engine
        try:
            if not ballast:
                engine.check_space(0)
            engine.reopen_if_in_doubt()
            if done not in meta.read_done(engine).values():
                engine.commit(self._batch(fill, done), True, ballast)
        except SqlError:
            self._refused = done if engine.in_doubt else None
            raise

    def resolve_refused(self) -> None:
        """Handle the write that a full disk refused, after the database was opened again.

        If the write is on disk after all, only a restart brings memory in line with the disk: raises StoreError.
        """
        refused, self._refused = self._refused, None
        if refused is not None and refused in meta.read_done(self._engine).values():
            raise StoreError(f"write {refused.epoch}.{refused.seq} was refused for a full disk but is on it: "
                             "start the worker again")
