"""A worker's full states over its orderly end: saved as its last act, read before its store is opened again.

Keeps true: saving begins nothing after SAVE_S, takes no more than SAVED_BYTES or half of the free disk, and raises
nothing, so a stop stays a stop; what did not fit, or could not be written, is built from the tables at the next start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noria.core.errors import SqlError
from noria.core.limits import SAVE_S, SAVED_BYTES
from noria.state.symbols import SymbolTable
from noria.storage.states import SavedStates, SavedUnusable, save, saved_states
from noria.storage.store import RocksStore

Note = Callable[[str], object]


def strings_of_before(directory: Path, symbols: SymbolTable, note: Note) -> SavedStates | None:
    """What was saved, once its strings are in the table, which has none so far.  Strings alone do no harm: whether the
    states are right is known when the store is open."""
    saved = saved_states(directory, note)
    if saved is None:
        return None
    try:
        symbols.restore(*saved.symbols())
    except (SavedUnusable, SqlError, ValueError) as e:
        note(f"saved states are not used: {e}")
        return None
    return saved


def keep(directory: Path, worker: Any, store: RocksStore, symbols: SymbolTable, note: Note,
         clock: Callable[[], float] = time.monotonic) -> None:
    """Save the worker's states.  worker: whose `states` they are."""
    try:
        until, stand, states = clock() + SAVE_S, store.stands(), list(worker.states())
        disk = os.statvfs(directory)
        most = min(SAVED_BYTES, disk.f_bavail * disk.f_frsize // 2)
        strings = symbols.saved()
        if stand is not None and states and sum(s.nbytes for s in strings) < most:
            save(directory, stand, strings, states, lambda nbytes: nbytes < most and clock() < until)
    except Exception as e:  # a full disk, no memory: nothing depends on what is saved, and the worker is to end
        note(f"states are not saved: {e!r}")
