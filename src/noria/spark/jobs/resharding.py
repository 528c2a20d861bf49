"""All steps from one number of workers to another, of a data directory that this process has claimed.

    settle, checkpoint → each table: files, taken in by the new stores → compare with the old ones → switch

Keeps true: whatever interrupts it, another run goes on behind the last table that is whole.  A Spark session is started
only when a table is too large to be done without, and ends with the run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noria.spark.hosting.session import SparkSettings, build_session
from noria.spark.jobs.progress import Progress
from noria.spark.jobs.reshard import reshard
from noria.storage import resharding
from noria.storage.catalog import family_of
from noria.storage.errors import StoreError
from noria.storage.resharding import NewStores, Plan
from noria.storage.shards import BEFORE, shards_of, workers_of
from noria.storage.snapshot import rows_about

Told = Callable[[str, int, int], object]  # what is done, rows done, rows in all


class Resharding:
    """epoch: of the claim.  make_session: for tests, which have one."""

    def __init__(self, data_dir: Path, workers: int, epoch: int, told: Told,
                 make_session: Callable[[], Any] | None = None):
        self._data_dir, self._workers, self._epoch, self._told = data_dir, workers, epoch, told
        self._make_session = make_session
        self._session: Any = None

    def run(self) -> str:
        """What there is then, in words.  StoreError: why nothing was changed."""
        if (done := resharding.finish_switch(self._data_dir)) is not None and done.after == self._workers:
            return _moved(done)
        found = workers_of(self._data_dir)
        if found == self._workers:
            return f"has {_counted(found)}: nothing to do"
        if (self._data_dir / BEFORE).exists():
            raise StoreError(f"{self._data_dir / BEFORE} has the stores of an earlier reshard: see that all is well "
                             f"and remove it (noria reshard --data-dir {self._data_dir} --workers {found} --drop-old)")
        plan = resharding.begin(self._data_dir, self._workers, self._epoch)
        stores = NewStores(self._data_dir, self._workers)
        try:
            self._tables(stores)
            wanted = stores.complete()
        finally:
            stores.close()
            self._end_session()
        resharding.verify(self._data_dir, self._workers, wanted,
                          lambda what, done, total: self._told(f"comparing {what}", done, total))
        resharding.switch(self._data_dir, plan)
        return f"{_moved(plan)}; {len(wanted)} tables, {sum(s.count for s in wanted.values()):,} rows"

    def _tables(self, stores: NewStores) -> None:
        shards = shards_of(stores.checkpoint)
        rows = {t.name: sum(rows_about(s, t) for s in shards) for t, _ in stores.tables}
        total, done = sum(rows.values()), 0
        for table, indexes in stores.tables:
            if not stores.has(table):
                out = resharding.place(self._data_dir) / "files" / family_of(table)
                shutil.rmtree(out, ignore_errors=True)
                dealt = reshard(self._spark, self._after(done, rows[table.name], total), checkpoint=stores.checkpoint,
                                table=table, indexes=indexes, workers=self._workers, out=str(out))
                stores.take(table, indexes, dealt.files, dealt.row_number, dealt.sums)
                shutil.rmtree(out)
            done += rows[table.name]
            self._told(f"table {table.name}", done, total)

    def _after(self, before: int, rows: int, total: int) -> Progress:
        """Tasks of a table's job as rows."""
        def told(done: int, of: int, what: str) -> None:
            self._told(what, before + rows * done // max(of, 1), total)

        return told

    def _spark(self) -> Any:
        if self._make_session is not None:
            return self._make_session()
        if self._session is None:
            settings = SparkSettings(workers=0, scratch_dir=self._data_dir / "spark-reshard", app_name="noria-reshard")
            self._session = build_session(settings.batch())
        return self._session

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.stop()
            shutil.rmtree(self._data_dir / "spark-reshard-batch", ignore_errors=True)


def _moved(plan: Plan) -> str:
    return f"has {_counted(plan.after)}, it had {plan.before}"


def _counted(workers: int) -> str:
    return f"{workers} worker" + "s" * (workers != 1)
