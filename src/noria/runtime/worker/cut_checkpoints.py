"""The checkpoint of one of several workers on disk: saved as of a cut of all, and restored if all have the same one.

    save → the file NEXT is written → keep: NEXT replaces the earlier checkpoint, once all workers have written theirs

Keeps true: a restored state lacks exactly the rows that its own worker and the others have written since the cut. Each
worker has its own in its delta log. The log begins at the cut and goes on in each life until the next checkpoint.
A checkpoint whose restoring ends a start is absent at the next one.

`runtime/cluster/checkpoints.py` decides when, and `dataflow/worker/saving.py` what is saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.limits import CHECKPOINT_BYTES, CHECKPOINT_SHARE, SAVE_S
from noria.dataflow.worker.saving import Named, States
from noria.runtime.worker.state_writer import StateWriter
from noria.state.symbols.symbols import SymbolTable
from noria.storage.commits import state_file
from noria.storage.commits.state_file import SavedStateFile
from noria.storage.rocks.errors import StoreError
from noria.storage.rocks.store_position import StorePosition
from noria.storage.store import RocksStore

Note = Callable[[str], object]


class CutCheckpoints:
    """`saved`: the file of an earlier life, whose texts the symbol table has. `cut`: as of which it is valid; "": there
    is no file that can be used."""

    def __init__(self, directory: Path, store: RocksStore, symbols: SymbolTable, saved: SavedStateFile | None,
                 note: Note, clock: Callable[[], float] = time.monotonic):
        self._directory, self._store, self._note, self._clock = directory, store, note, clock
        self._writer = StateWriter(directory, symbols)
        self._begun: tuple[str, StorePosition, Collection[str]] | None = None  # what is saved: cut, moment, names
        self._written = ""  # the cut of the complete file NEXT
        self._names: Collection[str] = ()  # of the states in the checkpoint
        self._bytes = 0
        self._saved: SavedStateFile | None = None
        self._restored_from = ""  # the cut, until it is logged
        self._offered: tuple[StorePosition | None, Mapping[str, Batch]] | None = None
        self.cut = ""
        if saved is not None and saved.cut and self._resume(saved):
            self._saved, self.cut, self._bytes = saved, saved.cut, saved.nbytes
            self._names = set(saved.states())
            saved.put_back()  # this start may end for another worker's sake before it restores anything
        else:
            self._forget()

    def _resume(self, saved: SavedStateFile) -> bool:
        """Continue the delta log. Returns whether it has all rows written since the cut."""
        try:
            if self._store.written_since(saved.position) is None:
                return False
            self._store.deltas.resume()
            return True
        except (SqlError, StoreError) as e:  # a full disk
            self._note(f"saved states are not used: {e!r}")
            return False

    def _forget(self) -> None:
        """Drop the checkpoint and its log."""
        self._names, self.cut, self._saved = (), "", None
        try:
            state_file.remove(self._directory)
            self._store.deltas.end()
        except (OSError, SqlError, StoreError) as e:
            self._note(f"the delta log is not removed: {e!r}")

    # ---------------------------------------------------------------- saving
    @property
    def is_writing(self) -> bool:
        """Whether states are being written, or are written and not kept yet."""
        return self._begun is not None

    def status(self, names: Collection[str]) -> dict[str, Any]:
        """`due`: whether a state of these names is not saved, or the delta log has a gap or is too long. `empty`: there
        is neither a checkpoint nor a log. `written`: the cut of the file that is complete, and not kept yet.
        `writing`: whether one is being written."""
        self._look()
        log = self._store.deltas
        short = log.nbytes <= max(CHECKPOINT_BYTES, int(CHECKPOINT_SHARE * self._bytes))
        return {"due": not (log.recording and short and set(names) <= set(self._names)),
                "empty": not (log.recording or self._names), "written": self._written,
                "writing": self._begun is not None and not self._written}

    def save(self, cut: str, states: Callable[[], Iterable[Named]], names: Collection[str], at_end: bool) -> bool:
        """Begin to save states, in a forked process unless `at_end`. Without names, drop the checkpoint. Returns
        whether that is possible."""
        self._stop()
        if not names:
            self._forget()
            return True
        try:
            if not self._store.deltas.recording:
                self._store.deltas.begin()
            position = self._store.position()
            if position is None:
                return False
            if at_end:
                until = self._clock() + SAVE_S
                self._writer.write(position, states(), state_file.NEXT, lambda: self._clock() < until, cut)
                self._written = cut
            else:
                self._writer.fork(position, states, cut)
        except (OSError, MemoryError, SqlError, StoreError) as e:
            self._note(f"states are not saved: {e!r}")
            return False
        self._begun = cut, position, names
        return True

    def _look(self) -> None:
        """Note whether the forked process has written the file."""
        if self._begun is None or not self._writer.is_writing or (why := self._writer.ended()) is None:
            return
        if why:
            self._note(f"states are not saved: {why}")
            self._stop()
        else:
            self._written = self._begun[0]

    def _stop(self) -> None:
        self._writer.stop()
        self._begun, self._written = None, ""

    def keep(self, cut: str, keep: bool) -> bool:
        """Replace the checkpoint by the one that was written as of this cut, and trim the log; or drop what was
        written."""
        begun = self._begun
        if not keep or begun is None or self._written != cut:
            self._stop()
            (self._directory / state_file.NEXT).unlink(missing_ok=True)
            return False
        self._stop()
        try:
            self._bytes = state_file.put_in_place(self._directory)
            self.cut, self._names = cut, begun[2]
            self._store.deltas.trim(begun[1])
        except (OSError, SqlError, StoreError) as e:
            self._note(f"states are not saved: {e!r}")
            return False
        return True

    # ---------------------------------------------------------------- restoring
    def is_restorable(self, cut: str) -> bool:
        """Whether the states of this cut are whole, and all rows written here since then are known, those of this
        life included."""
        saved = self._saved
        if saved is None or saved.cut != cut or not self._store.deltas.recording or not saved.is_whole():
            return False
        deltas = self._store.written_since(saved.position)
        if deltas is None:
            return False
        self._offered = self._store.position(), deltas
        return True

    def take(self) -> tuple[States, Mapping[str, Batch]]:
        """The states that are restorable, and the rows written since by table."""
        if self._saved is None or self._offered is None or self._store.position() != self._offered[0]:
            raise RuntimeError("the saved states are no longer those of the tables")
        self._saved.take_again()
        return self._saved.states(), self._offered[1]

    def started(self, restored: bool) -> None:
        """The worker has its graph. A usable file returns to its place for the next start."""
        saved, self._saved, self._offered = self._saved, None, None
        if saved is None:
            return
        if not self._store.deltas.recording:
            self._forget()
            return
        self._restored_from = saved.cut if restored else ""
        saved.put_back()

    def step(self) -> None:
        """Between two turns of a worker process: log once that it has restored its states."""
        if self._restored_from:
            self._note(f"states restored as of the cut {self._restored_from}")
            self._restored_from = ""
