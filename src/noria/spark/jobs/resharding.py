"""Changes the number of workers of a data directory that this process has claimed: `noria reshard`.

    settle, checkpoint → each table: files, which the new stores ingest → compare with the old ones → switch

Keeps true: after any interruption, another run continues after the last complete table.  A Spark session is started
only for a large table, and ends with the run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from noria.core.codec import Codec
from noria.spark.hosting.session import SparkSettings, build_session
from noria.spark.jobs.progress import Progress, stages
from noria.spark.jobs.reshard import reshard
from noria.storage.format.catalog import family_of
from noria.storage.format.entries_hash import MultisetHash
from noria.storage.offline import resharding
from noria.storage.offline.check import StoreCheck, StoreCheckReport
from noria.storage.offline.resharding import NewStores, ReshardingPlan
from noria.storage.offline.snapshot import sizes_about
from noria.storage.rocks.errors import StoreError
from noria.storage.tables.shards import BEFORE, counted, shards_of, workers_of

REPORTS = Codec(StoreCheckReport)
ReportProgress = Callable[[str, int, int], object]  # progress: the step, rows done, rows in total


class Resharding:
    """One run.  `epoch`: of the claim.  `make_session`: for tests, which have a session.  `again`: run even if the
    number of workers is the same, which moves misplaced rows to their owners."""

    def __init__(self, data_dir: Path, workers: int, epoch: int, report_progress: ReportProgress,
                 make_session: Callable[[], Any] | None = None, again: bool = False):
        self._data_dir, self._workers, self._epoch, self._report_progress = data_dir, workers, epoch, report_progress
        self._make_session, self._again = make_session, again
        self._session: Any = None
        self._rows = 0  # an estimate, of all tables

    def run(self) -> str:
        """Reshard, and return a sentence on the result.  Raises StoreError if nothing was changed."""
        if (done := resharding.finish_switch(self._data_dir)) is not None and done.after == self._workers:
            return _moved(done)
        found = workers_of(self._data_dir)
        if found == self._workers and not self._again:
            return f"has {counted(found)}: nothing to do"
        if (self._data_dir / BEFORE).exists():
            raise StoreError(f"{self._data_dir / BEFORE} has the stores of an earlier reshard: see that all is well "
                             f"and remove it (noria reshard --data-dir {self._data_dir} --workers {found} --drop-old)")
        plan = resharding.begin(self._data_dir, self._workers, self._epoch)
        try:
            wanted = self._filled()
            resharding.verify(self._checked(), wanted)
        finally:
            self._end_session()
        resharding.switch(self._data_dir, plan)
        return f"{_moved(plan)}; {len(wanted)} tables, {sum(s.count for s in wanted.values()):,} rows"

    def _filled(self) -> dict[str, MultisetHash]:
        """Fill the new stores with all tables.  Returns for each the sums of its rows in the old stores."""
        stores = NewStores(self._data_dir, self._workers)
        try:
            self._tables(stores)
            return stores.complete()
        finally:
            stores.close()

    def _checked(self) -> Iterator[StoreCheckReport]:
        """Read each new store completely and yield its report.  Spark's tasks do it if a session was started."""
        bases = resharding.new_bases(self._data_dir, self._workers)
        if self._session is None:
            for worker, base in enumerate(bases):
                yield StoreCheck(
                    base, lambda what, done, total: self._report_progress(f"comparing {what}", done, total), False,
                    worker, len(bases)).run()
            return
        with stages(self._session, self._after(0, self._rows, self._rows), "comparing all stores"):
            numbers = self._session.range(0, len(bases), 1, len(bases))
            found = numbers.mapInArrow(_check(bases), "worker int, report binary").collect()
        yield from (REPORTS.decode(bytes(r["report"])) for r in sorted(found, key=lambda r: int(r["worker"])))

    def _tables(self, stores: NewStores) -> None:
        shards = shards_of(stores.checkpoint)
        sizes = [sizes_about(s) for s in shards]
        about = {t.name: [s.get(family_of(t), (0, 0)) for s in sizes] for t, _ in stores.tables}
        rows = {name: sum(n for n, _ in some) for name, some in about.items()}
        self._rows = total = sum(rows.values())
        done = 0
        for table, indexes in stores.tables:
            if not stores.has(table):
                out = resharding.place(self._data_dir) / "files" / family_of(table)
                shutil.rmtree(out, ignore_errors=True)
                dealt = reshard(self._spark, self._after(done, rows[table.name], total), checkpoint=stores.checkpoint,
                                table=table, indexes=indexes, workers=self._workers, out=str(out),
                                about=about[table.name])
                stores.take(table, indexes, dealt.files, dealt.row_number, dealt.sums)
                shutil.rmtree(out)
            done += rows[table.name]
            self._report_progress(f"table {table.name}", done, total)

    def _after(self, before: int, rows: int, total: int) -> Progress:
        """Return a callback that converts the progress of a table's job from tasks to rows."""
        def report_progress(done: int, of: int, what: str) -> None:
            self._report_progress(what, before + rows * done // max(of, 1), total)

        return report_progress

    def _spark(self) -> Any:
        if self._session is None and self._make_session is not None:
            self._session = self._make_session()
        if self._session is None:
            settings = SparkSettings(workers=0, scratch_dir=self._data_dir / "spark-reshard", app_name="noria-reshard")
            with _stderr_to(self._data_dir / "spark.log"):  # the JVM writes its output there until it ends
                self._session = build_session(settings.batch())
        return self._session

    def _end_session(self) -> None:
        if self._session is not None and self._make_session is None:
            self._session.stop()
            shutil.rmtree(self._data_dir / "spark-reshard-batch", ignore_errors=True)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Append standard error of this process, and of the processes that it starts, to a file."""
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def packed(report: StoreCheckReport) -> bytes:
    """Encode a report.  This is a function of the module so that Spark pickles its name, not the codec."""
    return REPORTS.encode(report)


def _check(bases: list[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of Spark's tasks, which maps numbers of stores to their reports."""
    def check(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for n in batch.column(0).to_pylist():
                report = packed(StoreCheck(bases[n], lambda *step: None, False, n, len(bases)).run())
                yield pa.record_batch([pa.array([n], pa.int32()), pa.array([report], pa.binary())],
                                      names=["worker", "report"])

    return check


def _moved(plan: ReshardingPlan) -> str:
    before = "each row at the worker that it belongs to" if plan.before == plan.after else f"it had {plan.before}"
    return f"has {counted(plan.after)}, {before}"
