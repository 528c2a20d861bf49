"""The delta log: the rows written since a worker last saved its states, with which a restart brings them up to date.

    family `deltas`:  sequence number before a commit  →  sequence number after it | the rows it added and removed

A record is part of the commit whose rows it has, so a crash keeps both or neither.  RocksDB counts every write of every
tool in its sequence number.  Hence the log is complete exactly where each record begins at the number at which the
previous one ended.  A load, a new index or an offline tool writes without a record and so leaves a gap.

Keeps true: `since` returns the net rows of every commit after a moment, or None if one of them has no record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from rocksdict import WriteBatch

from noria.core.batch import Batch, concat
from noria.core.errors import SqlError
from noria.core.limits import DELTA_BYTES, DELTA_COMMIT_ROWS
from noria.storage.rocks.engine import DELTAS, RocksEngine
from noria.storage.rocks.errors import StoreError
from noria.storage.rocks.store_position import StorePosition
from noria.storage.statements.stage import TableStage, net
from noria.storage.tables.table import StoredTable

_Rows = list[tuple[int, list[bytes], list[bytes]]]  # for each table, by number: packed rows added, and removed
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Rows).decode
_NUMBER = 8  # bytes of a sequence number
_ROWS_READ = 1_000


class DeltaLog:
    """Records the rows of commits.  Nothing is recorded before `resume` or `begin`.

    nbytes: the size of the records since the last `trim`.
    """

    def __init__(self, engine: RocksEngine):
        self._engine = engine
        self._end: int | None = None  # sequence number after the last record; None: nothing is recorded
        self.nbytes = 0

    @property
    def recording(self) -> bool:
        """True if the log has a record of every commit up to now."""
        return self._end is not None and not self._engine.in_doubt and self._end == self._engine.sequence()

    def begin(self) -> None:
        """Record every commit from now on."""
        if DELTAS not in self._engine.families():
            self._engine.create_family(DELTAS)
        self._end, self.nbytes = self._engine.sequence(), 0

    def end(self) -> None:
        """Record nothing, and drop what was recorded."""
        self._end, self.nbytes = None, 0
        if DELTAS in self._engine.families():
            self._engine.drop_family(DELTAS)

    # ---------------------------------------------------------------- recording
    def record(self, batch: WriteBatch, stages: Iterable[TableStage], deltas: Mapping[str, Batch]) -> None:
        """Add the record of a commit to its batch, which is otherwise complete.  deltas: the net rows by table.

        A commit of very many rows gets no record.  The log then has a gap until states are saved again.
        """
        if self._end is None:
            return
        before = self._engine.sequence()
        if before != self._end or sum(map(len, deltas.values())) > DELTA_COMMIT_ROWS or self.nbytes > DELTA_BYTES:
            self._end = None
            return
        try:
            rows = [_packed(stage, deltas[name]) for stage in stages if (name := stage.table.name) in deltas]
        except SqlError:  # a row of an older release that no table would take today
            self._end = None
            return
        self._end = before + len(batch) + 1
        self._put(batch, before, self._end, rows)

    def _put(self, batch: WriteBatch, before: int, end: int, rows: _Rows) -> None:
        value = end.to_bytes(_NUMBER, "big") + _encode(rows)
        self.nbytes += len(value)
        batch.put(before.to_bytes(_NUMBER, "big"), value, self._engine.handle(DELTAS))

    def trim(self, position: StorePosition) -> None:
        """Drop the records before a moment as of which all states are saved."""
        if not self.recording:
            return
        batch, before = WriteBatch(raw_mode=True), self._engine.sequence()
        batch.delete_range(bytes(_NUMBER), position.sequence.to_bytes(_NUMBER, "big"), self._engine.handle(DELTAS))
        self._end, self.nbytes = before + 2, 0
        self._put(batch, before, self._end, [])
        self._engine.commit(batch, sync=False)

    # ---------------------------------------------------------------- reading
    def since(self, position: StorePosition, tables: Iterable[StoredTable]) -> dict[str, Batch] | None:
        """By table, the net rows of all commits after `position`; None if they are unknown.

        They end at the opening of the store, or now if the log is recording.  Tables dropped since `position` are left
        out.
        """
        end = self._end if self._end is not None and self.recording else self._engine.opened_at.sequence
        if self._engine.opened_at.identity != position.identity:
            return None
        found = self._records(position.sequence, end) if position.sequence < end else []
        if found is None or position.sequence > end:
            return None
        by_number = {t.definition.table_id: t for t in tables}
        parts: dict[str, list[Batch]] = {}
        for number, added, removed in (row for rows in found for row in rows):
            if (table := by_number.get(number)) is not None:
                parts.setdefault(table.name, []).extend(_unpacked(table, added, removed))
        netted = {name: net(concat(some, some[0].width)) for name, some in parts.items() if some}
        return {name: rows for name, rows in netted.items() if len(rows)}

    def _records(self, sequence: int, end: int) -> list[_Rows] | None:
        """The records from a sequence number until another one; None if one is missing."""
        found: list[_Rows] = []
        self.nbytes = 0
        if DELTAS not in self._engine.families():
            return None
        after = sequence.to_bytes(_NUMBER, "big")
        try:
            while items := self._engine.items(DELTAS, _ROWS_READ, after):
                for key, value in items:
                    if int.from_bytes(key, "big") != sequence:
                        return None
                    sequence = int.from_bytes(value[:_NUMBER], "big")
                    self.nbytes += len(value)
                    found.append(_decode(value[_NUMBER:]))
                after = items[-1][0] + b"\0"
        except (SqlError, StoreError, msgspec.DecodeError):  # a damaged file: states are built from the tables
            return None
        return found if sequence == end else None

    def resume(self) -> None:
        """Continue recording after `since` has returned rows.

        The writes made while the store was opened, such as its fence, change no row.
        """
        if DELTAS not in self._engine.families():
            self._engine.create_family(DELTAS)
        batch, before = WriteBatch(raw_mode=True), self._engine.opened_at.sequence
        self._end = self._engine.sequence() + 1
        self._put(batch, before, self._end, [])
        self._engine.commit(batch)


def _packed(stage: TableStage, delta: Batch) -> tuple[int, list[bytes], list[bytes]]:
    number = stage.table.definition.table_id
    if all(not effect.old.shape[1] for effect in stage.effects):  # only added rows: they are packed already
        return number, [row for effect in stage.effects for row in effect.changes[0].values], []
    added, removed = (np.repeat(delta.columns[:, which], np.abs(delta.weights[which]), axis=1)
                      for which in (delta.weights > 0, delta.weights < 0))
    return number, stage.table.rows(added), stage.table.rows(removed)


def _unpacked(table: StoredTable, added: Sequence[bytes], removed: Sequence[bytes]) -> list[Batch]:
    return [Batch.of(table.codes(rows), weight) for rows, weight in ((added, 1), (removed, -1)) if rows]
