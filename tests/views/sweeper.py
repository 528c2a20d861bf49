"""A writer process for the tests: writes new rows with new texts, and sweeps the old texts, until it is killed.

Every row of the key "key <k>" has the texts "value <k> <n> …" of one n.  Keys are evicted and filled again, so that
their ids, too, go from one text to another.  Prints a line for every 1,000 updates.

    python sweeper.py DIRECTORY EPOCH
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

from noria.core.batch import Batch
from noria.core.types import TEXT, Field
from noria.state.symbols.symbols import SymbolTable
from noria.views.writer import ViewDirectory

KEYS, ROWS, WIDTH = 8, 4, 3
SWEEP_EVERY = 25  # updates of a key: readers must get a word in


def rows(symbols: SymbolTable, key: int, number: int) -> Batch:
    texts = [f"value {key} {number} {'é' * (number % 17)} {r}" for r in range(ROWS)]
    columns = [[f"key {key}"] * ROWS, *[texts] * (WIDTH - 1)]
    return Batch.of(np.stack([symbols.intern_many(pa.array(c)) for c in columns]))


def main(directory: str, epoch: int) -> None:
    symbols = SymbolTable(directory)
    fields = [Field(f"c{i}", TEXT) for i in range(WIDTH)]
    view = ViewDirectory(directory + "/views", symbols, epoch).create("v", fields, (0,), WIDTH, False)
    number = 0
    print("up", flush=True)
    while True:
        key = number * 5 % KEYS
        view.begin_tick(number + 1)
        known = symbols.find(f"key {key}")
        if known is not None:
            view.evict(np.array([[known]], np.int64))
        if number % SWEEP_EVERY == 0:
            symbols.sweep(view.held())  # the key's id is free: the next strings take it
        symbols.intern_many(pa.array([f"other {number} {i}" for i in range(1 + number % 5)]))
        fresh = rows(symbols, key, number)
        view.fill(fresh.columns[:1, :1].copy(), fresh)
        number += 1
        view.end_tick(number)
        if number % 1000 == 0:
            print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
