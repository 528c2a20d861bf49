"""Readers' states without shared memory: a `ViewFactory` over `state.rows.table.Table`."""

from __future__ import annotations

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.symbols import Symbols
from noria.dataflow.graph.keys import distinct, folded_keys
from noria.state.rows.table import Table


class TableView:
    def __init__(self, name, fields, key, full, symbols):
        self.full, self.key, self.symbols = full, tuple(key), symbols
        self.folds = [f.type.folds for f in fields]
        self.table = Table(len(fields), [f.type.folds for f in fields], symbols, full=full, name=name)
        self.table.add_index(self.key)

    def missing(self, keys):
        return self.table.missing(self.key, keys)

    def apply(self, delta: Batch) -> None:
        self.table.apply(delta)

    def fill(self, keys: Codes, rows: Batch) -> None:
        self.table.fill(self.key, keys, rows)

    def evict(self, keys: Codes) -> int:
        return self.table.evict(self.key, keys)

    def rows(self, keys: Codes):
        return self.table.lookup(self.key, keys)

    def present(self):
        if not self.full:
            return self.table.present(self.key)
        keys = self.table.rows().columns[list(self.key)]
        if not self.key:
            return np.empty((0, min(1, len(self.table))), np.int64)
        folds = [self.folds[c] for c in self.key]
        return distinct(folded_keys(self.symbols, folds, keys))

    def present_count(self):
        return self.present().shape[1]

    def coldest(self, most):
        return self.table.coldest(self.key, most)

    def begin_tick(self, tick):
        pass

    def end_tick(self, tick):
        pass

    def activate(self):
        pass

    def expect(self, rows, keys):
        pass

    def rename(self, name):
        self.table.name = name

    def memory(self):
        return self.table.memory()

    def held(self):
        return self.table.held(range(self.table.width))

    def __len__(self):
        return len(self.table)

    def drop(self):
        pass


class TableViews:
    def __init__(self, symbols: Symbols):
        self.symbols = symbols

    def create(self, name, fields, key, visible, full, definition=0):
        return TableView(name, fields, key, full, self.symbols)

    def take_over(self) -> None:
        pass
