"""Bulk loads and exports: votes from Parquet and stories with texts from CSV, compared with MariaDB's LOAD DATA.

Each data set is loaded into two tables, one after the other, because the first load of a server also starts Spark's
Python workers and compiles its plans.  For each load it prints the rows a second, from the command to its end, and the
most memory of the server's processes.  Shared memory counts once.  MariaDB loads the same rows as tab-separated text,
and syncs its log.

    python bench/bulk.py [--votes 20000000] [--stories 5000000] [--options "--workers 2"]
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

import noria
from mysql import MariaDb, NoriaServer

PART_ROWS = 1_000_000
VOTES = "CREATE TABLE {} (story_id INT NOT NULL, user BIGINT NOT NULL, PRIMARY KEY (story_id, user))"
STORIES = "CREATE TABLE {} (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(80), url VARCHAR(120))"


@dataclass(frozen=True)
class Set:
    """A data set.  file: for Noria.  tsv: the same rows for MariaDB."""

    name: str
    create: str
    rows: int
    file: Path
    tsv: Path


def votes(directory: Path, rows: int) -> Set:
    """Write the votes.  Stories have a Zipf distribution; vote i is of user i, so keys are not in order."""
    rng = np.random.default_rng(1)
    made = Set("votes", VOTES, rows, directory / "votes.parquet", directory / "votes.tsv")
    schema = pa.schema([("story_id", pa.int32()), ("user", pa.int64())])
    with pq.ParquetWriter(made.file, schema) as out, pc.CSVWriter(made.tsv, schema, write_options=TSV) as text:
        for at in range(0, rows, PART_ROWS):
            n = min(PART_ROWS, rows - at)
            part = pa.table([(rng.zipf(1.08, n) % 2_000_000).astype(np.int32), np.arange(at, at + n)], schema=schema)
            out.write_table(part)
            text.write_table(part)
    return made


def stories(directory: Path, rows: int) -> Set:
    made = Set("stories", STORIES, rows, directory / "stories.csv", directory / "stories.tsv")
    schema = pa.schema([("id", pa.int32()), ("author", pa.int32()), ("title", pa.string()), ("url", pa.string())])
    with pc.CSVWriter(made.file, schema) as out, pc.CSVWriter(made.tsv, schema, write_options=TSV) as text:
        for at in range(0, rows, PART_ROWS):
            ids = np.arange(at, min(at + PART_ROWS, rows))
            part = pa.table([ids.astype(np.int32), (ids % 9200).astype(np.int32),
                             [f"Story number {i} of the benchmark" for i in ids],
                             [f"https://example.com/{i}" for i in ids]], schema=schema)
            out.write_table(part)
            text.write_table(part)
    return made


TSV = pc.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")


class Memory(threading.Thread):
    """Measures the most memory, in MB, of a process and its descendants while the block runs."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self._pid, self._over, self.most = pid, threading.Event(), 0.0

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.5):
            self.most = max(self.most, sum(map(_share, family(self._pid))) / 1024)


def family(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from family(int(child))


def _share(pid: int) -> int:
    """Return the memory of a process in kB; shared memory counts by its share."""
    with contextlib.suppress(OSError):
        for row in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if row.startswith("Pss:"):
                return int(row.split()[1])
    return 0


def timed(server: MariaDb | NoriaServer, work: object, *arguments: object) -> tuple[float, float]:
    """Run `work`.  Return the seconds and the most memory of the server."""
    assert server._process is not None and callable(work)
    start = time.perf_counter()
    with Memory(server._process.pid) as memory:
        work(*arguments)
    return time.perf_counter() - start, memory.most


def ours(server: NoriaServer, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "noria", *words, "--url", server.http], check=True, stdout=subprocess.DEVNULL)


def theirs(server: MariaDb, text: str) -> None:
    with server.connect() as c, c.cursor() as cursor:
        cursor.execute(text)


def load(server: NoriaServer, maria: MariaDb, data: Set, when: str) -> None:
    table = f"{data.name}_{when}"
    with noria.connect(server.http) as db:
        db.sql(data.create.format(table))
    theirs(maria, data.create.format(table))
    seconds, most = timed(server, ours, server, "load", table, str(data.file))
    with noria.connect(server.http) as db:
        (count,), = db.sql(f"SELECT COUNT(*) FROM {table}")
        assert count == data.rows, (table, count)
    their_seconds, their_most = timed(maria, theirs, maria, f"LOAD DATA INFILE '{data.tsv}' INTO TABLE {table}")
    print(f"load {data.name:8} {when:6} {data.rows:>11,} rows: Noria {data.rows / seconds:>9,.0f}/s {most:6,.0f} MB   "
          f"LOAD DATA {data.rows / their_seconds:>9,.0f}/s {their_most:6,.0f} MB   "
          f"ratio {their_seconds / seconds:.2f}", flush=True)


def export(server: NoriaServer, maria: MariaDb, data: Set, form: str, directory: Path) -> None:
    out = directory / f"{data.name}-{form}"
    seconds, most = timed(server, ours, server, "export", f"{data.name}_first", str(out), "--to", form)
    their_seconds, _ = timed(maria, theirs, maria, f"SELECT * FROM {data.name}_first INTO OUTFILE '{out}.tsv'")
    print(f"export {data.name:8} to {form:8}{data.rows:>11,} rows: Noria {data.rows / seconds:>9,.0f}/s {most:6,.0f} MB"
          f"   INTO OUTFILE {data.rows / their_seconds:>9,.0f}/s   ratio {their_seconds / seconds:.2f}", flush=True)
    shutil.rmtree(out)
    (directory / f"{out.name}.tsv").unlink()


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--votes", type=int, default=20_000_000)
    args.add_argument("--stories", type=int, default=5_000_000)
    args.add_argument("--options", default="", help="of `noria serve`")
    a = args.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="noria-bench-"))
    maria, server = MariaDb(directory), NoriaServer(directory, options=tuple(a.options.split()))
    server.directory = directory / "noria"
    server.directory.mkdir()
    try:
        sets = (votes(directory, a.votes), stories(directory, a.stories))
        maria.start()
        server.start()
        for when in ("first", "later"):
            for data in sets:
                load(server, maria, data, when)
        for data in sets:
            for form in ("parquet", "csv"):
                export(server, maria, data, form, directory)
    finally:
        server.stop()
        maria.stop()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
