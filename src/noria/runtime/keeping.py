"""A worker's full states over its orderly end: saved as its last act, read before its store is opened again.

Keeps true: saving takes no longer than SAVE_S and no more than SAVED_BYTES, so a stop stays a stop; what did not fit,
or could not be written, is built from the tables at the next start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    except (SavedUnusable, ValueError) as e:
        note(f"saved states are not used: {e}")
        return None
    return saved


def keep(directory: Path, worker: Any, store: RocksStore, symbols: SymbolTable, note: Note,
         clock: Callable[[], float] = time.monotonic) -> None:
    """Save the worker's states.  worker: whose `states` they are."""
    until, stand = clock() + SAVE_S, store.stands()
    if stand is None:
        return
    try:
        save(directory, stand, symbols.saved(), worker.states(),
             lambda nbytes: nbytes < SAVED_BYTES and clock() < until)
    except OSError as e:  # a full disk: nothing depends on it
        note(f"states are not saved: {e}")
