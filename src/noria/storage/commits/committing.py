"""One commit of a store: exactly once by (epoch, seq), and what to do when the disk is full.

Keeps true: a change that comes again gets its first results; a commit that failed is not there, or the store says that
only a new start tells.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from rocksdict import WriteBatch

from noria.core.batch import Batch
from noria.core.errors import InvariantViolation, SqlError
from noria.storage.commits.delta_log import DeltaLog
from noria.storage.format.catalog import Done
from noria.storage.rocks.engine import Engine
from noria.storage.rocks.errors import StoreError, StoreFenced
from noria.storage.statements.stage import Stage
from noria.storage.tables import meta


class Committing:
    """last_epoch, last_seq: of the last commit.  _done: recent results, by slot; _refused: what a full disk refused."""

    deltas: DeltaLog
    _engine: Engine
    _done: dict[int, Done]
    _refused: Done | None
    last_epoch: int
    last_seq: int

    def _repeated(self, epoch: int, seq: int) -> Done | None:
        """What (epoch, seq) did if it was committed before.  StoreFenced for an epoch that is over."""
        if (epoch, seq) > (self.last_epoch, self.last_seq):
            return None
        if epoch < self.last_epoch:
            raise StoreFenced(f"a write of epoch {epoch} came after epoch {self.last_epoch} began")
        done = self._done.get(seq % meta.RECENT_RESULTS)
        if done is None or (done.epoch, done.seq) != (epoch, seq):
            raise InvariantViolation("ACK-DURABLE", f"write {epoch}.{seq} comes again, but the last is "
                                     f"{self.last_epoch}.{self.last_seq} and its results are not kept")
        return done

    def _commit(self, fill: Callable[[WriteBatch], object], done: Done, sync: bool, ballast: bool = False,
                stages: Collection[Stage] = (), deltas: Mapping[str, Batch] | None = None) -> None:
        """Commit what `fill` puts into a batch, as (epoch, seq).  stages, deltas: the rows that it changes."""
        engine, batch = self._engine, self._batch(fill, done)
        self.deltas.record(batch, stages, deltas or {})
        try:
            engine.commit(batch, sync, ballast)
        except SqlError:
            if not engine.in_doubt:
                raise
            self._commit_again(fill, done, ballast)
        self._done[done.seq % meta.RECENT_RESULTS] = done
        self.last_epoch, self.last_seq = done.epoch, done.seq

    def _batch(self, fill: Callable[[WriteBatch], object], done: Done) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        fill(batch)
        meta.put_done(self._engine, batch, done)
        return batch

    def _commit_again(self, fill: Callable[[WriteBatch], object], done: Done, ballast: bool) -> None:
        """The disk was full.  If it is no longer, or the ballast may go: see whether it is there, else write it."""
        engine = self._engine
        try:
            if not ballast:
                engine.check_space(0)
            engine.settle()
            if done not in meta.read_done(engine).values():
                engine.commit(self._batch(fill, done), True, ballast)
        except SqlError:
            self._refused = done if engine.in_doubt else None
            raise

    def _settle(self) -> None:
        """The database was opened again after a failed write.  If what was refused is there after all, only
        a new start brings memory in line with the disk."""
        refused, self._refused = self._refused, None
        if refused is not None and refused in meta.read_done(self._engine).values():
            raise StoreError(f"write {refused.epoch}.{refused.seq} was refused for a full disk but is on it: "
                             "start the worker again")
