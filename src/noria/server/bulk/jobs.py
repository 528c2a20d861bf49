"""Bulk work: snapshots of the base tables, and the Spark jobs over them, which run in the driver process.

    query      a SELECT that no view answers
    bootstrap  the first state of a full node over large tables
    index      the entries of an index of a large table
    load       files → SST files built by Spark's tasks → one `Ingest`
    backup     a checkpoint for the command line to copy
    verify     every view recomputed and compared
    rewrite    an UPDATE or DELETE of a large table

Keeps true: a job's own snapshot exists only while the job runs, and a failed job leaves nothing behind.  The number of
jobs of each kind is bounded; one too many is rejected at once.  If Spark dies, the running queries run again, one at a
time; the query under which it dies again gets the error.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noria.accounts.registry import FILE
from noria.control.processes.slots import Slots
from noria.control.processes.supervisor import DriverGone, JobError, NoDriver, Supervisor
from noria.control.program import Program
from noria.core import limits
from noria.core.errors import SqlError, codes, no_table, too_many_jobs, unknown_table
from noria.core.limits import BACKUP_LINE_S, SPARK_BULK_JOBS, SPARK_QUERIES, SPARK_QUEUE
from noria.core.statements import Delete, Update
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Bootstrap, Done, IndexRequest, Ingest, Inspect, Read, Snapshot
from noria.plan.mir import Mir, tables_of
from noria.plan.optimizer import error_reporting_view
from noria.plan.view import ViewDef
from noria.runtime.link.link import Link
from noria.server.bulk.job_directories import remove_directory
from noria.server.bulk.load_permit import drop_rejects, keep_rejects, unchanged
from noria.server.bulk.maintained import is_little, states_of, written
from noria.server.bulk.merging import Put, merged
from noria.server.bulk.parents import Hold, ParentsOfLoad
from noria.server.bulk.reporting import compared, failed
from noria.server.bulk.snapshots import Snapshots, taken
from noria.server.rows import python_rows
from noria.sql.commands import BatchQuery

if TYPE_CHECKING:  # at run time only the jobs that need them import them: serving does not need pyspark
    from noria.spark.jobs.index import IndexFilesMade
    from noria.spark.jobs.rewrite import Matching, Rewritten
    from noria.spark.jobs.verify import VerifyReport
    from noria.spark.loading.load import LoadReport


WAITING, RUNNING = "waiting for a Spark slot", "running on Spark"  # states in SHOW PROCESSLIST
log = logging.getLogger("noria")
SetState = Callable[[str], None]
Run = Callable[[str], Awaitable[object]]  # a statement of SQL


def _silent(state: str) -> None:
    """Report to nobody."""


class BulkJobs:
    """Runs bulk jobs.  directory: for snapshots and intermediate files.  It must be on the file system of the base
    tables, since a checkpoint consists of hard links.  workers: the number of workers that store the tables."""

    def __init__(self, supervisor: Supervisor, link: Link, program: Program, directory: Path, workers: int = 1):
        self._supervisor, self._link, self._program, self._workers = supervisor, link, program, workers
        self._directory = directory
        self._numbers = itertools.count(1)
        self._pools = [f"bulk-{n}" for n in range(3 * SPARK_BULK_JOBS)]  # free ones, in which no job runs
        self._storing: dict[asyncio.Future[Any], str] = {}  # ingests that are under way, and their tables
        self._indexing: dict[str, tuple[int, int]] = {}  # (tasks done, tasks in all), by ticket
        shutil.rmtree(directory, ignore_errors=True)  # left by a server that was killed
        directory.mkdir(mode=0o700, parents=True)
        self.snapshots = Snapshots(link, directory)
        self.hold: Hold | None = None  # keeps others from writing the parents of a load
        self.queries = Slots(SPARK_QUERIES, SPARK_QUEUE, lambda: too_many_jobs(
            "queries", SPARK_QUEUE, "create a view that answers it"))
        self.jobs = Slots(SPARK_BULK_JOBS, SPARK_QUEUE, lambda: too_many_jobs(
            "loads and verifications", SPARK_QUEUE, "load several files at once"))
        self._first_states = Slots(SPARK_BULK_JOBS, SPARK_QUEUE, lambda: too_many_jobs(
            "first states", SPARK_QUEUE, "create fewer views at once"))

    @asynccontextmanager
    async def _place(self, what: str) -> AsyncIterator[Path]:
        """Create a directory for one job, which is removed at the end of the block."""
        path = self._directory / f"{what}-{next(self._numbers)}"
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            await asyncio.shield(asyncio.to_thread(remove_directory, path))  # even if cancelled here

    @asynccontextmanager
    async def _in_slot(self, slots: Slots) -> AsyncIterator[None]:
        release = await slots.take()
        try:
            yield
        finally:
            release()

    async def _snapshot(self, place: Path, node: int = -1) -> str:
        path = place / "checkpoint"
        await taken(self._link, Snapshot(0, str(path), node=node))
        return str(path)

    async def _ask(self, packet: Any) -> Any:
        reply: Done = await self._link.ask(packet)
        return reply.result()

    # ------------------------------------------------------------ query
    async def query(self, batch: BatchQuery, set_state: SetState = _silent) -> list[tuple[Any, ...]]:
        """Run a query over a snapshot and return its rows.  Cancelling the call ends the query on Spark.  set_state:
        called with the query's state, WAITING or RUNNING.  Raises SqlError 1041 if Spark is not available or its driver
        ended twice, and 1105 if the query failed."""
        if self.queries.must_wait():
            set_state(WAITING)
        try:
            answer = await self._answer(batch, set_state, await self.queries.take())
        except NoDriver as e:
            raise SqlError(*codes.OUT_OF_RESOURCES, str(e)) from e
        except DriverGone:
            answer = await self._alone(batch, set_state)
        except JobError as e:
            raise SqlError(*codes.UNKNOWN_ERROR, str(e)) from e
        return await asyncio.to_thread(python_rows, answer.rows, answer.rows.num_columns)

    async def _alone(self, batch: BatchQuery, set_state: SetState) -> Any:
        """Run the query again while no other query runs: if the driver dies again, this query is the cause."""
        set_state(WAITING)
        try:
            return await self._answer(batch, set_state, await self.queries.take_all())
        except DriverGone as e:
            raise SqlError(*codes.OUT_OF_RESOURCES,
                           "Spark ended twice while it worked on this query, most likely for lack of "
                           f"memory; narrow it with a WHERE, or create a view for it: {e}") from e
        except JobError as e:
            raise SqlError(*codes.UNKNOWN_ERROR, str(e)) from e

    async def _answer(self, batch: BatchQuery, set_state: SetState, release: Callable[[], None]) -> Any:
        """Run the query in a slot.  `release` frees the slot when no task of the query runs on Spark any more."""
        set_state(RUNNING)
        try:
            async with self.snapshots.use() as checkpoint:
                job = self._supervisor.run_job(
                    "noria.spark.jobs.query:query", pool=f"queries-{next(self._numbers) % SPARK_QUERIES}",
                    on_end=release, checkpoint=checkpoint, tables=list(self._program.tables()), plan=batch.plan,
                    visible=batch.visible)
                release = _nothing
                return await job
        finally:
            release()

    async def export(self, batch: BatchQuery, checkpoint: str, out: Path, files: int) -> None:
        """Write the rows of a query over a snapshot to `files` Parquet files in the new directory `out`."""
        async with self._in_slot(self.queries):
            try:
                await self._run("noria.spark.jobs.export:export", checkpoint=checkpoint, plan=batch.plan, files=files,
                                tables=list(self._program.tables()), visible=batch.visible, out=str(out))
            except (JobError, DriverGone) as e:
                raise failed(e) from e

    async def write(self, batch: BatchQuery, form: str, out: str) -> AsyncIterator[dict[str, Any]]:
        """Write a query's rows over a current snapshot to the new directory `out`.  Yield progress, then the result."""
        async with self._in_slot(self.jobs), self.snapshots.use() as checkpoint:
            async for step in self._steps("noria.spark.jobs.files:write", checkpoint=checkpoint, plan=batch.plan,
                                          tables=list(self._program.tables()), visible=batch.visible, format=form,
                                          out=out):
                yield step

    # ------------------------------------------------------------ first states
    async def bootstrap(self, view: ViewDef, node: int, plan: Mir) -> None:
        """Compute a node's input rows over a snapshot made now.  The workers keep back the deltas since then."""
        async with self._in_slot(self._first_states), self._place("bootstrap") as place:
            checkpoint = await self._snapshot(place, node)
            replayed = await self._repeated("noria.spark.jobs.bootstrap:bootstrap", checkpoint=checkpoint, plan=plan,
                                            tables=list(self._program.tables()), out=str(place / "rows"))
            await self._ask(Bootstrap(view.name, node, replayed.files))

    # ------------------------------------------------------------ indexes
    @asynccontextmanager
    async def index(self, worker: Link, wanted: IndexRequest) -> AsyncIterator[IndexFilesMade]:
        """Build files with the entries of an index of the worker's current rows.  The files exist within the block."""
        async with self._in_slot(self._first_states), self._place("index") as place:
            def set_progress(done: int, total: int, what: str) -> None:
                self._indexing[wanted.ticket] = done, total

            checkpoint = str(place / "checkpoint")
            await taken(worker, Snapshot(0, checkpoint))
            try:
                yield await self._repeated("noria.spark.jobs.index:index", progress=set_progress, checkpoint=checkpoint,
                                           table=wanted.table, columns=wanted.columns, out=str(place / "sst"))
            finally:
                self._indexing.pop(wanted.ticket, None)

    def furthered(self, builds: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a worker's builds with Spark's progress: the share of finished tasks, as a number of rows."""
        return [{**b, "rows": b["of"] * self._indexing[b["ticket"]][0] // self._indexing[b["ticket"]][1]}
                if b["ticket"] in self._indexing else b for b in builds]

    async def _repeated(self, job: str, **arguments: Any) -> Any:
        """Return a job's result.  If the driver dies, the job runs again; its input must survive the driver."""
        while True:
            try:
                return await self._run(job, **arguments)
            except DriverGone:
                shutil.rmtree(arguments["out"], ignore_errors=True)

    async def _run(self, job: str, **arguments: Any) -> Any:
        """Return a job's result.  If cancelled, wait until no task of the job runs, so that its files can go."""
        ended = asyncio.Event()
        with self._pool() as pool:
            try:
                return await self._supervisor.run_job(job, pool=pool, on_end=ended.set, **arguments)
            except asyncio.CancelledError:
                await ended.wait()
                raise

    @contextmanager
    def _pool(self) -> Iterator[str]:
        """Provide a scheduler pool for one job alone, since Spark runs the jobs of one pool one after the other."""
        name = self._pools.pop() if self._pools else ""
        try:
            yield name or "bulk"
        finally:
            self._pools += [name] if name else []

    # ------------------------------------------------------------ load
    async def load(self, request: dict[str, Any], run: Run | None = None, put: Put | None = None
                   ) -> AsyncIterator[dict[str, Any]]:
        """Load files and yield steps of progress.  The last step has `rows` and `rejected`.

        request: of `LoadPermit.check`.  run: runs SQL.  put: writes rows that may conflict with stored ones."""
        from noria.spark.loading.load import LoadSpec
        from noria.spark.loading.rows.reading import of_request

        name, reading = self._program.catalog.resolved(str(request.get("table", ""))), of_request(request)
        if request.get("create") and self._program.table(name) is not None:
            raise SqlError(*codes.TABLE_EXISTS, f"Table '{name}' already exists: leave out --create to load into it")
        is_view = self._program.view(name) is not None
        if self._program.table(name) is None and (is_view or not request.get("create")):
            raise no_table(name, is_view)
        async with self._in_slot(self.jobs), self._place("load") as place:
            sources: tuple[Any, ...] = ()
            if request.get("create"):
                async for step in self._steps("noria.spark.loading.inferring:infer", files=request["files"],
                                              table=self._program.catalog.to_make(name), reading=reading,
                                              keys=request.get("primary_key", ()), place=str(place / "plain")):
                    if "result" in step:
                        sources, statement = step["result"].sources, step["result"].statement
                    else:
                        yield step
                assert run is not None
                await run(statement)
                yield {"step": f"made the table {name}", "statement": statement}
            table = self._program.table(name)
            if table is None:  # dropped meanwhile
                raise unknown_table(name)
            about = await self._ask(Inspect(0, "table", table.name))
            spec = LoadSpec(table, tuple(request["files"]), str(place / "sst"), str(place / "rejected"), reading,
                            about["indexes"], request.get("max_rejects"), about["auto_increment"], self._workers,
                            sources)
            merges = request.get("on_duplicate", "error") != "error"
            job, report = "merging:rows" if merges else "load:load", None

            def build(spec: LoadSpec) -> AsyncIterator[dict[str, Any]]:
                return self._again(f"noria.spark.loading.{job}", spec.out, spec=spec)

            async def gone(**arguments: Any) -> int:
                found: int = await _job_result(asyncio.ensure_future(self._run("noria.spark.loading.parents:gone",
                                                                         **arguments)))
                return found

            async with ParentsOfLoad(self._program.foreign_keys, self._link.written, table, place, self._snapshot,
                                     self.hold) as parents:
                async for step in parents.built(build, gone, spec, merges):
                    if "result" in step:
                        report = step["result"]
                    else:
                        yield step
                assert report is not None
                reject_file = str(request.get("reject", "")) if report.rejected else ""
                if reject_file:
                    await asyncio.to_thread(keep_rejects, report.reject_file, reject_file)
                assert put is not None or not merges
                about_it = {"rejected": report.rejected, "examples": report.examples, "reject_file": reject_file}
                async for step in merged(table, report, request, put) if put and merges else self._taken_in(
                        table, parents, report, request):
                    if step["step"] == "done" and not report.rejected and request.get("reject"):
                        await asyncio.to_thread(drop_rejects, str(request["reject"]))
                    yield {**about_it, **step} if step["step"] == "done" else step

    async def _taken_in(self, table: TableDef, parents: ParentsOfLoad, report: LoadReport, request: dict[str, Any]
                        ) -> AsyncIterator[dict[str, Any]]:
        yield {"step": f"taking {report.rows:,} rows in"}
        parents.refuse_emptied()
        if report.rows:
            await self._ingested(Ingest(unchanged(table, self._program), report.files, report.rows,
                                        report.auto_increment, report.shards, request.get("once", "")))
        yield {"step": "done", "rows": report.rows}

    async def _ingested(self, body: Ingest) -> None:
        """Let the workers ingest files.  If cancelled, wait until they are ingested or never will be."""
        taking = self._link.submit(body)
        self._storing[taking] = body.table.lower()
        taking.add_done_callback(self._storing.pop)
        try:
            done: Done = await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._link.cancel(taking)
            await asyncio.wait((taking,))
            raise
        done.result()

    async def stored(self, table: TableDef) -> None:
        """Wait for the loads into the table that the workers ingest now."""
        if storing := [future for future, name in self._storing.items() if name == table.name.lower()]:
            await asyncio.wait(storing)

    async def _again(self, job: str, out: str, **arguments: Any) -> AsyncIterator[dict[str, Any]]:
        """As `_steps`, but the job begins again if the driver dies, at most SPARK_TRIES times.  out: its directory."""
        for left in reversed(range(limits.SPARK_TRIES)):
            try:
                async with aclosing(self._steps(job, **arguments)) as steps:
                    async for step in steps:
                        yield step
                return
            except SqlError as e:
                if not isinstance(e.__cause__, DriverGone) or isinstance(e.__cause__, NoDriver) or not left:
                    raise
                log.warning("%s begins again: %s", job.rpartition(":")[2], e.__cause__)
                yield {"step": "Spark's driver ended; the job begins again with the next one"}
                if out:
                    await asyncio.to_thread(shutil.rmtree, out, True)

    async def _steps(self, job: str, **arguments: Any) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the progress of a job, then its result as `{"result": …}`.  Closing the iterator cancels the job."""
        if not self._supervisor.is_up:
            yield {"step": "waiting for Spark, which is starting"}
        steps: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        def report_progress(done: int, total: int, what: str) -> None:
            steps.put_nowait({"step": what, "done": done, "total": total})

        task = asyncio.ensure_future(self._run(job, progress=report_progress, **arguments))
        task.add_done_callback(lambda _: steps.put_nowait(None))
        try:
            while (step := await steps.get()) is not None:
                yield step
            yield {"result": await _job_result(task)}
        finally:
            task.cancel()
            await asyncio.wait([task])

    # ------------------------------------------------------------ rewriting
    async def matching(self, statement: Update | Delete, table: TableDef, set_state: SetState) -> Matching:
        """Find the rows that the statement matches (`control.ddl.rewriting.Rewriter`)."""
        async with self._place("rewrite") as place:
            checkpoint = await self._snapshot(place)
            found: Matching = await self._running("noria.spark.jobs.rewrite:matching", set_state, checkpoint=checkpoint,
                                                  statement=statement, table=table, most=limits.REWRITTEN_KEYS)
            return found

    async def rewritten(self, statement: Update | Delete, table: TableDef, other: TableDef, set_state: SetState
                        ) -> None:
        """Write the table's rows as the statement leaves them into the table `other`."""
        from noria.spark.jobs.rewrite import TableRewrite

        async with self._place("rewrite") as place:
            checkpoint = await self._snapshot(place)
            about = await self._ask(Inspect(0, "table", other.name))
            wanted = TableRewrite(statement, table, other, about["indexes"], self._workers)
            made: Rewritten = await self._running("noria.spark.jobs.rewrite:rewrite", set_state, checkpoint=checkpoint,
                                                  wanted=wanted, out=str(place / "sst"))
            set_state("taking rows in")
            if made.rows:
                await self._ingested(Ingest(other.name, made.files, made.rows, made.auto_increment, made.shards))

    async def _running(self, job: str, set_state: SetState, **arguments: Any) -> Any:
        """Return a job's result.  Its progress becomes the statement's state.  Raises SqlError if it fails."""
        def report_progress(done: int, total: int, what: str) -> None:
            set_state(f"{what}: {done} of {total} tasks")

        try:
            return await self._run(job, progress=report_progress, **arguments)
        except NoDriver as e:
            raise SqlError(*codes.OUT_OF_RESOURCES, f"{e}; nothing is changed") from e
        except JobError as e:
            raise SqlError(*codes.UNKNOWN_ERROR, f"{e}; nothing is changed") from e

    # ------------------------------------------------------------ backup
    async def backup(self, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Make a checkpoint for a process on this host to copy.  It exists until the client disconnects.  Yield its
        path, then a line each BACKUP_LINE_S, which shows the client that it still exists."""
        async with self._place("backup") as place:
            if (accounts := self._directory.parent / FILE).exists():
                shutil.copy2(accounts, place / FILE)
            yield {"checkpoint": await self._snapshot(place)}
            while True:
                await asyncio.sleep(BACKUP_LINE_S)
                yield {"held": True}

    # ------------------------------------------------------------ verify
    async def verify(self, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Recompute views on Spark and compare them.  Without `views` in the request, verify all.  Yield steps of
        progress, then one line for each view: `view`, `agrees` (None: nothing to compare) and the differences.  A line
        follows for each table with misplaced rows: among the tables of these views, or among all."""
        wanted = [self._program.catalog.resolved(str(v)) for v in request.get("views", ())]
        for name in wanted:
            if self._program.view(name) is None:
                raise unknown_table(name)
        async with self._in_slot(self.jobs), self._place("verify") as place:
            yield {"step": "snapshot of the base tables and the views"}
            unread = self._without_reader(wanted)
            path = place / "checkpoint"
            snapshot = await taken(self._link, Snapshot(0, str(path), views=True))
            views = {v.name: error_reporting_view(v) for v in (*self._program.views(), *self._program.adhoc())}
            chosen = {n for w in wanted for n in views if n.lower() == w.lower()} or set(views)
            tables = self._below(views[n] for n in chosen) if wanted else list(self._program.tables())
            lacking = [views[n] for n, state in snapshot["views"].items()
                       if n in chosen and is_little(states_of(state))]
            derived: dict[str, int] = {}
            if lacking:
                yield {"step": f"keys to compare of {len(lacking)} views of which little is present"}
                derived = await self._derive(path, lacking)
                path = place / "derived"
                snapshot = await taken(self._link, Snapshot(0, str(path), views=True))
            states = [(views[n], states_of(state)) for n, state in snapshot["views"].items() if n in chosen]
            maintained = [await asyncio.to_thread(written, place, i, *s) for i, s in enumerate(states)]
            report: VerifyReport | None = None
            async for step in self._again("noria.spark.jobs.verify:verify", "", checkpoint=str(path),
                                          tables=tables, views=maintained):
                if "result" in step:
                    report = step["result"]
                else:
                    yield step
        assert report is not None
        for view in report.views:
            yield {"view": view.view, "agrees": view.ok, "rows": view.rows, "keys": view.keys, "of": view.of,
                   "derived": derived.get(view.view, 0), "compared": compared(view, derived.get(view.view, 0)),
                   "differences": [*map(str, view.differences), *([view.error] if view.error else [])]}
        for table in dict.fromkeys(m.table for m in report.misplaced):
            yield {"view": table, "agrees": False, "rows": 0, "keys": None, "of": None, "derived": 0,
                   "compared": "the worker of each row of the table, and what is UNIQUE",
                   "differences": [str(m) for m in report.misplaced if m.table == table]}
        for name, why in unread:
            yield {"view": name, "agrees": None, "rows": 0, "keys": 0, "of": 0, "derived": 0, "differences": [],
                   "compared": f"nothing: {why}"}

    def _below(self, views: Iterable[ViewDef]) -> list[TableDef]:
        """Return the tables that the views derive from."""
        names = {name for v in views for name in tables_of(v.plan)}
        return [t for t in self._program.tables() if t.name in names]

    def _without_reader(self, wanted: Sequence[str]) -> list[tuple[str, str]]:
        """Return the wanted views that have no state of their own, and why.  If `wanted` is empty: of all views."""
        found = [(v.name, self._program.why_readerless(v.name)) for v in self._program.views()]
        names = {n.lower() for n in wanted}
        return [(name, why) for name, why in found if why and (not names or name.lower() in names)]

    async def _derive(self, checkpoint: Path, views: list[ViewDef]) -> dict[str, int]:
        """Let the workers derive some keys of these views.  Return the number of derived keys by view."""
        try:
            keys: dict[str, list[Any]] = await self._run(
                "noria.spark.jobs.verify:sample", checkpoint=str(checkpoint), tables=self._below(views), views=views,
                most=limits.VERIFY_KEYS)
        except (JobError, DriverGone) as e:
            raise failed(e) from e
        derived = {}
        for view in views:
            sampled = keys.get(view.name, []) if view.key else [()]
            if sampled:
                reply = await self._link.ask(Read(0, view.name, sampled, fill=True))
                derived[view.name] = len(sampled) if reply.error is None else 0
        return derived


def _nothing() -> None:
    """Release nothing: the job releases the slot."""


async def _job_result(task: asyncio.Future[Any]) -> Any:
    """Return a job's result.  Raises SqlError for bad files, a refused load, a failed job or a lost driver."""
    from noria.spark.loading.rows.files import BadFile
    from noria.spark.loading.tasks.tasks import LoadRefused

    try:
        return await task
    except (BadFile, LoadRefused) as e:
        raise SqlError(*codes.UNKNOWN_ERROR, str(e)) from e
    except (JobError, DriverGone) as e:
        raise failed(e) from e
