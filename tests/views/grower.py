"""A writer process for the tests: keys come to a large view, BATCH a tick, so that its index grows again and again.

Prints "up" when the first keys are there, awaits a line, and goes on until it is killed or all have come.

    python grower.py DIRECTORY full|partial
"""

from __future__ import annotations

import sys

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.types import BIGINT, Field
from noria.state.symbols.symbols import SymbolTable
from noria.views.writer import ViewDirectory, WritableView

BATCH, KEYS = 2, 200_000


def make(directory: str | None, full: bool) -> WritableView:
    symbols = SymbolTable(directory)
    place = None if directory is None else directory + "/views"
    return ViewDirectory(place, symbols, 1).create("v", [Field(c, BIGINT) for c in "ab"], (0,), 2, full)


def rows_of(keys: Codes) -> Batch:
    return Batch.of(np.stack([keys, 3 * keys]))


def add(view: WritableView, tick: int, first: int, many: int) -> None:
    """Add this number of keys in one tick."""
    keys = np.arange(first, first + many, dtype=np.int64)
    view.begin_tick(tick)
    if view.full:
        view.apply(rows_of(keys))
    else:
        view.fill(keys[None, :], rows_of(keys))
    view.end_tick(tick)


def main(directory: str, full: bool) -> None:
    view = make(directory, full)
    if full:
        view.activate()
    for tick in range(1, KEYS // BATCH + 1):
        add(view, tick, (tick - 1) * BATCH, BATCH)
        if tick == 1:
            print("up", flush=True)
            sys.stdin.readline()
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "full")
