"""A writer process for the tests: publishes version after version of a few keys until it is killed.

Every version of a key has ROWS rows; in each row all columns but the key hold one number, the version's.  So a
reader that sees two numbers saw two versions at once.  Prints a line for every 1,000 versions of each key.

    python hammer.py DIRECTORY EPOCH
"""

from __future__ import annotations

import sys

import numpy as np

from noria.core.batch import Batch
from noria.core.types import BIGINT, Field
from noria.state.symbols.symbols import SymbolTable
from noria.views.writer import ViewDirectory, WritableView

KEYS, ROWS, WIDTH = 2, 24, 12


def version(key: int, number: int) -> np.ndarray:
    """Columns: the key, then the number; the last column distinguishes the rows of a version, but not versions."""
    columns = np.full((WIDTH, ROWS), number, np.int64)
    columns[0], columns[-1] = key, np.arange(ROWS)
    return columns


def make(directory: str, epoch: int) -> WritableView:
    fields = [Field(f"c{i}", BIGINT) for i in range(WIDTH)]
    return ViewDirectory(directory + "/views", SymbolTable(directory), epoch).create("v", fields, (0,), WIDTH, False)


def main(directory: str, epoch: int) -> None:
    view = make(directory, epoch)
    view.fill(np.arange(KEYS, dtype=np.int64)[None, :], Batch.of(
        np.concatenate([version(k, 0) for k in range(KEYS)], axis=1)))
    weights = np.repeat(np.array([-1, 1], np.int64), ROWS)
    number = 0
    print("up", flush=True)
    while True:
        view.begin_tick(number + 1)
        for key in range(KEYS):
            view.apply(Batch(np.concatenate([version(key, number), version(key, number + 1)], axis=1), weights))
        number += 1
        view.end_tick(number)
        if number % 1000 == 0:
            print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
