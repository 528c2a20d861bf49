"""One object that serves all requests of Spark's source and of followers, for the HTTP interface."""

from __future__ import annotations

from pathlib import Path

from noria.runtime.link.link import Link
from noria.server.answering.executor import Executor
from noria.server.bulk.jobs import BulkJobs
from noria.server.source.checked_writes import CheckedWrites
from noria.server.source.exports import Exports
from noria.server.source.follows import Followers
from noria.server.source.snapshot_reads import SnapshotReads
from noria.server.source.source_planner import ServerSourcePlanner
from noria.server.source.writes import Run, StagedWrites


class SparkSource:
    """Wires the modules of this room.  directory: for snapshots and staged rows; run: runs a statement of SQL.
    checked: as in `StagedWrites`."""
    def __init__(self, executor: Executor, bulk: BulkJobs, link: Link, directory: Path, run: Run,
                 checked: CheckedWrites | None = None):
        planner = ServerSourcePlanner(executor, bulk)
        self.reads = SnapshotReads(planner, bulk.snapshots, directory)
        self.export = Exports(planner, bulk).run
        self.plan, self.rows, self.held = self.reads.plan, self.reads.rows, self.reads.held
        self.writes = StagedWrites(executor, bulk, link, directory, run, checked)
        self.follows = Followers(executor, link, self.writes, run)
        self.part, self.commit, self.drop = self.writes.part, self.writes.commit, self.writes.drop
        self.load, self.loaded = self.writes.load, self.writes.loaded

    async def close(self) -> None:
        self.follows.close()
        await self.reads.close()
        await self.writes.close()
