"""kill -9 at random points of random statement groups: what was acknowledged is there, whole; of what was not,
all or nothing; what was in flight is applied once when it comes again."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Statement, WriteResult
from noria.core.values import decode
from noria.storage.store import RocksStore
from reference.killed_writer import SEED, SMALL, TABLES, group, write_until_killed
from reference.table_model import Refused, Row, TableModel

KILLS = 20


def acknowledged(context: Any, path: Path, draw: random.Random) -> int:
    """Let a process write, kill it, and say what it acknowledged last."""
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=write_until_killed, args=(str(path), writer), daemon=True)
    process.start()
    writer.close()
    last = 0
    with suppress(EOFError):
        for _ in range(draw.randint(1, 60)):
            last = reader.recv()
        os.kill(process.pid, signal.SIGKILL)
        while True:
            last = reader.recv()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "the writing process ended by itself"
    return last


def test_kill_9_loses_and_halves_nothing(tmp_path: Path) -> None:
    print("seed", SEED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["reference.killed_writer"])
    path, draw = tmp_path / "data", random.Random(SEED)
    store = RocksStore(str(path), PlainSymbols(), memory=SMALL)
    for table in TABLES:
        store.create_table(table)
    store.set_recipe(["two tables"], 1, 1)
    store.close()
    models, done = {t.name: TableModel(t) for t in TABLES}, 1
    for _ in range(KILLS):
        acked = acknowledged(context, path, draw)
        symbols = PlainSymbols()
        store = RocksStore(str(path), symbols, memory=SMALL)
        applied = store.applied()[1]
        assert applied in (acked, acked + 1)
        for seq in range(done + 1, applied + 1):
            results = [run(models, statement, step) for statement, step in group(seq)]
        done = applied
        again, deltas = store.write([s for s, _ in group(done)], 1, done)
        assert [told(r) for r in again] == results and not deltas
        for name, model in models.items():
            assert contents(store, name, symbols) == Counter(model.rows)
            assert store.row_count(name) == len(model.rows)
            check_indexes(store, name)
        store.close()
    assert done > KILLS


def run(models: dict[str, TableModel], statement: Statement, step: Any) -> int:
    model = models[statement.table]
    try:
        answer: int = model.attempt(lambda: step(model))
        return answer
    except Refused as refused:
        return -refused.code


def told(result: WriteResult) -> int:
    return result.affected if result.error is None else -result.error.code


def contents(store: RocksStore, name: str, symbols: PlainSymbols) -> Counter[Row]:
    columns = store.tables()[name].columns
    batch, after = store.scan(name, None, 10**6)
    assert after is None
    return Counter(tuple(decode(c, column.type, symbols) for c, column in zip(row, columns, strict=True))
                   for row in batch.rows())


def check_indexes(store: RocksStore, name: str) -> None:
    """Every index has exactly the entries that the rows say."""
    table = store.table(name)
    keys, values = zip(*store.engine.items(table.family, 2**62), strict=True)
    for index in table.indexes:
        entries = dict(zip(table.index_keys(index, table.codes(values), list(keys)), keys, strict=True))
        assert dict(store.engine.items(index.family, 2**62)) == entries
