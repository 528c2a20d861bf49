"""A process that writes random statement groups to a store until it is killed; what each means to the model."""

from __future__ import annotations

import random
from typing import Any

from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert, Statement, Update
from noria.core.types import BIGINT, INT, TEXT, Column, IndexDef, TableDef
from noria.storage.rocks.options import RocksMemory
from noria.storage.store import RocksStore
from reference.table_model import Row

SEED = 4711
SMALL = RocksMemory(cache_bytes=2**20, write_buffer_bytes=2**17, family_buffer_bytes=2**16, reserve_bytes=0)
TABLES = (
    TableDef("keyed", (Column("id", BIGINT, False), Column("n", INT), Column("name", TEXT)), (0,),
             (IndexDef("n", (1,)), IndexDef("name", (2,), True))),
    TableDef("bag", (Column("n", INT), Column("name", TEXT))),
)


def group(seq: int) -> list[tuple[Statement, Any]]:
    """The statements of a write, always the same for a seq, and what each means to the model."""
    draw = random.Random(SEED * 1_000_003 + seq)
    steps: list[tuple[Statement, Any]] = []
    for _ in range(draw.randint(1, 4)):
        table = draw.choice(TABLES)
        width, n = len(table.columns), draw.randint(0, 9)
        number = width - 2
        if draw.random() < 0.7:
            rows = [(*([draw.randrange(300)] if width == 3 else []), draw.randrange(10), f"x{draw.randrange(900)}" * 9)
                    for _ in range(draw.choice([1, 3, 40]))]
            mode = draw.choice(["error", "ignore", "replace"])
            steps.append((Insert(table.name, tuple(range(width)), rows, mode),
                          lambda m, rows=rows, mode=mode: m.insert(rows, mode)[0]))
            continue
        where = call("eq", col(number, INT), const(n, INT))

        def chosen(row: Row, number: int = number, n: int = n) -> bool:
            return bool(row[number] == n)

        if draw.random() < 0.5:
            steps.append((Delete(table.name, where), lambda m, chosen=chosen: m.delete(chosen)))
        else:
            steps.append((Update(table.name, ((number, const(n + 1, INT)),), where),
                          lambda m, chosen=chosen, number=number, n=n: m.update(
                              chosen, lambda r: (*r[:number], n + 1, *r[number + 1 :]))[0]))
    return steps


def write_until_killed(path: str, acknowledge: Any) -> None:
    """Acknowledge every group on the connection, as soon as `write` returned."""
    store = RocksStore(path, PlainSymbols(), memory=SMALL)
    seq = store.applied()[1]
    while True:
        seq += 1
        store.write([s for s, _ in group(seq)], 1, seq)
        acknowledge.send(seq)
        if seq % 50 == 0:
            store.add_index("keyed", (1, 2) if seq % 100 else (2, 1))
