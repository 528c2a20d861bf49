"""A look-up reads some blocks, however large its file is: filters and indexes are read in parts."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import WriteBatch

from noria.storage.rocks.engine import RocksEngine
from noria.storage.rocks.options import RocksMemory
from noria.storage.tables.sst import write_file

KEYS, CHUNK, LOOKUPS = 600_000, 20_000, 200
MOST_BYTES = 24_000  # of a look-up, on average; a filter of all keys in one block has 750,000


def key(i: int) -> bytes:
    return (2 * i).to_bytes(8, "big")


def written(engine: RocksEngine) -> None:
    for at in range(0, KEYS, CHUNK):
        batch = WriteBatch(raw_mode=True)
        batch.set_default_column_family(engine.handle("rows"))
        for i in range(at, at + CHUNK):
            batch[key(i)] = bytes(12)
        batch.set_default_column_family(None)
        engine.commit(batch, sync=False)
    engine.flush()


def loaded(engine: RocksEngine, path: Path) -> None:
    """As Spark's tasks write the rows of a load."""
    batches = (pa.record_batch([pa.array(map(key, range(at, at + CHUNK)), pa.binary()),
                                pa.array([bytes(12)] * CHUNK, pa.binary())], names=["k", "v"])
               for at in range(0, KEYS, CHUNK))
    file = write_file(str(path), batches)
    assert file is not None and file.rows == KEYS
    engine.ingest("rows", [file.path])


def bytes_read() -> int:
    """By system calls of this process, whether from the disk or from the kernel's cache."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("how", ["written", "loaded"])
@pytest.mark.parametrize("present", [True, False])
def test_a_lookup_reads_little(tmp_path: Path, how: str, present: bool) -> None:
    engine = RocksEngine(str(tmp_path / "base"), RocksMemory(cache_bytes=2**20))
    engine.create_family("rows")
    if how == "written":
        written(engine)
    else:
        loaded(engine, tmp_path / "rows.sst")
    chance = random.Random(1)
    keys = [key(i) if present else key(i)[:-1] + bytes([key(i)[-1] + 1]) for i in chance.sample(range(KEYS), LOOKUPS)]
    before = bytes_read()
    found = [engine.get("rows", k) for k in keys]
    nbytes = (bytes_read() - before) / LOOKUPS
    engine.close()
    assert all((value is not None) is present for value in found)
    assert nbytes < MOST_BYTES, f"{nbytes:,.0f} bytes for a look-up"
