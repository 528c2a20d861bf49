"""Saves a worker's full states as checkpoints, while it serves and at an orderly end, and restores them at its start.
Call `Checkpoints.restore` at the start, `step` between turns and `keep` at the end.

    checkpoint: the states and texts as of one commit (`storage/commits/state_file.py`)
    delta log:  the rows written since (`storage/commits/delta_log.py`); one tick applies them to the restored states

A forked process writes a checkpoint while the worker serves (`state_writer.py`). `cut_checkpoints.py` has the
checkpoints of one of several workers.

Keeps true: a checkpoint replaces the previous one only when it is complete on disk. A restored checkpoint is put
back when the states have caught up; so if it kills the worker, the next start has none. A checkpoint is
optional: missing states are built from the tables. At the end, no state is begun after SAVE_S.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noria.core.errors import SqlError
from noria.core.limits import (
    CHECKPOINT_BYTES,
    CHECKPOINT_KEYS_S,
    CHECKPOINT_LOOK_S,
    CHECKPOINT_REST,
    CHECKPOINT_S,
    CHECKPOINT_SHARE,
    SAVE_S,
)
from noria.dataflow.worker.saving import KEYS
from noria.runtime.worker.state_writer import StateWriter
from noria.state.symbols.symbols import SymbolTable
from noria.storage.commits import state_file
from noria.storage.commits.state_file import SavedStateFile, SavedUnusable
from noria.storage.rocks.errors import StoreError
from noria.storage.rocks.store_position import StorePosition
from noria.storage.store import RocksStore

Note = Callable[[str], object]


def strings_of_before(directory: Path, symbols: SymbolTable, note: Note) -> SavedStateFile | None:
    """Load the texts of the last checkpoint into the empty symbol table, and return the checkpoint. Extra texts
    do no harm; whether its states are valid is known when the store is open."""
    saved = state_file.saved_states(directory, note)
    if saved is None:
        return None
    try:
        symbols.restore(*saved.symbols())
    except (SavedUnusable, SqlError, ValueError) as e:
        note(f"saved states are not used: {e}")
        return None
    return saved


@dataclass(frozen=True)
class _Writing:
    """A checkpoint that is being written: its commit, its states with about their bytes, and its start."""

    position: StorePosition
    nbytes_of: dict[str, int]
    began: float


class Checkpoints:
    """The checkpoints of one worker. `worker`: its `states` are saved (`dataflow/worker/worker.py`). `clock`:
    seconds."""

    def __init__(self, directory: Path, worker: Any, store: RocksStore, symbols: SymbolTable, note: Note,
                 clock: Callable[[], float] = time.monotonic):
        self._directory, self._worker, self._store = directory, worker, store
        self._note, self._clock = note, clock
        self._writer = StateWriter(directory, symbols)
        self._restored_from: SavedStateFile | None = None  # not yet put back on disk
        self._resumes = False  # the delta log goes on when the worker begins to serve
        self._writing: _Writing | None = None
        self._next = clock() + CHECKPOINT_LOOK_S
        self._bytes, self._saved = 0, dict[str, int]()  # of the last one; its states, with about their bytes
        self._written = clock() - CHECKPOINT_KEYS_S  # when it was written

    def restore(self, saved: SavedStateFile | None) -> None:
        """Offer the saved states to the worker before it serves, if all rows written since are known."""
        deltas = None if saved is None else self._store.written_since(saved.position)
        if saved is not None and deltas is not None:
            self._restored_from, self._bytes, self._resumes = saved, saved.nbytes, True
            self._saved, self._written = dict.fromkeys(saved.states(), 0), self._clock()
            self._worker.restore(saved.states(), deltas)
            return
        if saved is not None:  # present keys are useful even without the deltas
            keys = {name: some for name, some in saved.states().items() if name.startswith(KEYS)}
            self._worker.restore(keys, {})
        state_file.remove(self._directory)
        self._store.deltas.end()

    # ---------------------------------------------------------------- while it serves
    def step(self) -> None:
        """Between two turns of the worker: begin a due checkpoint, or check whether one is written."""
        try:
            self._step()
        except Exception as e:  # no memory for a fork, a defect: the worker serves without
            self._next = self._clock() + CHECKPOINT_S
            self._note(f"states are not saved: {e!r}")

    def _step(self) -> None:
        if self._resumes:
            self._resumes = False
            self._resume()
        if self._restored_from is not None and not self._worker.restoring:
            restored, self._restored_from = self._restored_from, None
            self._note(f"{self._worker.engine.restored} states restored")
            restored.put_back()
        if self._writing is not None:
            self._look()
        elif self._clock() >= self._next:
            self._next = self._clock() + CHECKPOINT_LOOK_S
            self._begin_if_due()

    def _resume(self) -> None:
        try:
            self._store.deltas.resume()
        except (SqlError, StoreError) as e:  # a full disk: the log has a gap
            self._note(f"written rows are not recorded: {e!r}")

    def _begin_if_due(self) -> None:
        log, builds = self._store.deltas, self._worker.engine.builds
        if self._worker.restoring or builds or builds.states:
            return
        nbytes_of = {name: nbytes for name, nbytes, _ in self._worker.states()}
        names = {name for name in nbytes_of if not name.startswith(KEYS)}
        if log.recording and not names:
            self._end_log()
        if self._is_due(names) or self._keys_are_due(nbytes_of):
            self._begin(nbytes_of)

    def _is_due(self, names: set[str]) -> bool:
        """Whether a state is not saved, or the delta log has a gap or is too long."""
        log = self._store.deltas
        short = log.nbytes <= max(CHECKPOINT_BYTES, int(CHECKPOINT_SHARE * self._bytes))
        return bool(names) and not (log.recording and short and names <= self._saved.keys())

    def _keys_are_due(self, nbytes_of: Mapping[str, int]) -> bool:
        """Whether the present keys differ much from those saved some time ago."""
        now, before = (sum(n for name, n in some.items() if name.startswith(KEYS)) for some in (nbytes_of, self._saved))
        late = self._clock() >= self._written + CHECKPOINT_KEYS_S
        return late and (now != before if min(now, before) == 0 else max(now, before) > 1.25 * min(now, before))

    def _end_log(self) -> None:
        try:
            self._store.deltas.end()
        except (SqlError, StoreError) as e:
            self._note(f"the delta log is not removed: {e!r}")

    def _begin(self, nbytes_of: Mapping[str, int]) -> None:
        try:
            if not self._store.deltas.recording and not all(name.startswith(KEYS) for name in nbytes_of):
                self._store.deltas.begin()
        except (SqlError, StoreError) as e:  # a full disk: tried again later
            self._note(f"states are not saved: {e!r}")
            return
        position = self._store.position()
        if position is None:
            return
        began = self._clock()
        self._writer.fork(position, self._worker.states)
        self._writing = _Writing(position, dict(nbytes_of), began)

    def _look(self) -> None:
        """If the checkpoint is written, replace the previous one and trim the log."""
        writing = self._writing
        assert writing is not None
        if (why := self._writer.ended()) is None:
            return
        self._writing = None
        self._next = self._clock() + max(CHECKPOINT_S, CHECKPOINT_REST * (self._clock() - writing.began))
        try:
            if why:
                raise OSError(why)
            self._bytes = state_file.put_in_place(self._directory)
            self._store.deltas.trim(writing.position)
            self._saved, self._written = writing.nbytes_of, self._clock()
        except (OSError, SqlError, StoreError) as e:
            self._note(f"states are not saved: {e!r}")

    # ---------------------------------------------------------------- at the end
    def keep(self) -> None:
        """Save the states as the last act of a worker that ends in order."""
        self._writer.stop()
        until, position = self._clock() + SAVE_S, None
        try:
            position = self._store.position()
            state_file.remove(self._directory)
            if position is not None:
                self._writer.write(position, self._worker.states(), state_file.FILE, lambda: self._clock() < until)
        except Exception as e:  # a full disk, no memory: saved states are optional, and the worker is to end
            self._note(f"states are not saved: {e!r}")
