"""Steps of tests of indexes that a table declares: alter the table, wait for its indexes, check the closed store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dataflow.building import WAITING, Building
from noria.core.types import IndexDef
from noria.dataflow.inspect.validate import validate
from noria.dataflow.messages import packets
from noria.storage.offline.check import StoreCheck

BY_A = IndexDef("by_a", (1,))


def alter(bench: Building, *indexes: IndexDef) -> packets.Migrated:
    """Alter t so that it declares these indexes and no others."""
    table = replace(bench.store.tables()["t"], indexes=indexes)
    reply: packets.Migrated = bench.change(packets.Migrate((packets.AlterTable(table),), ()))
    return reply


def await_indexes(bench: Building) -> None:
    """Send a request that is answered when the indexes of t are built."""
    bench.replies += [r.body for r in bench.worker.step(
        [packets.Envelope(1, -1, 0, packets.Inspect(WAITING, "indexed", "t"))])]


def families(bench: Building) -> set[str]:
    """The column families of t's indexes on disk."""
    return {f for f in bench.store.engine.families() if f.startswith("t1.")}


def check_store(bench: Building, path: Path) -> None:
    """Close the store and check it: there are no findings. The bench's own close does nothing then."""
    validate(bench.worker.engine)
    bench.worker.close()
    report = StoreCheck(str(path / "base"), lambda what, done, total: None).run()
    assert report.findings == [] and report.tables == {"t": len(bench.rows)}
