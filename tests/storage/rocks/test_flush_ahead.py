"""What is in memory goes to files before a checkpoint does, and it is known when it is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import WriteBatch

from noria.storage.rocks.engine import RocksEngine
from noria.storage.rocks.options import RocksMemory

ROWS, CHUNK = 60_000, 5_000


@pytest.mark.timeout(60)
def test_done_means_on_disk(tmp_path: Path) -> None:
    engine = RocksEngine(str(tmp_path / "base"), RocksMemory())
    for name in ("large", "small"):
        engine.create_family(name)
        for at in range(0, ROWS if name == "large" else CHUNK, CHUNK):
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(engine.handle(name))
            for i in range(at, at + CHUNK):
                batch[i.to_bytes(8, "big")] = bytes(60)
            batch.set_default_column_family(None)
            engine.commit(batch, sync=False)
    assert engine.flush_ahead(2**21) is False, "the large one has just been begun"
    while not engine.flush_ahead(2**21):
        pass
    assert in_memory(engine, "large") == 0 and in_memory(engine, "small") == CHUNK
    while not engine.flush_ahead(0):
        pass
    assert in_memory(engine, "small") == 0
    engine.close()


def in_memory(engine: RocksEngine, name: str) -> int:
    family = engine.family(name)
    return sum(int(family.property_int_value(f"rocksdb.num-entries-{what}") or 0)
               for what in ("active-mem-table", "imm-mem-tables"))
