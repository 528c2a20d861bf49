"""What a load does about the parents of its rows, with Spark and the locks replaced by what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.core.types import INT, Column, ForeignKey, TableDef
from noria.dataflow.messages.packets import Done, Ingest
from noria.runtime.link.written import WrittenTables
from noria.server.bulk.jobs import BulkJobs
from noria.server.bulk.parents import ParentsOfLoad
from noria.spark.loading.load import LoadSpec

PARENT = TableDef("p", (Column("id", INT, False),), (0,))
CHILD = TableDef("c", (Column("id", INT, False), Column("p", INT)), (0,),
                 foreign_keys=(ForeignKey("c_ibfk_1", (1,), "p", ("id",)),))
TREE = replace(CHILD, name="tree", foreign_keys=(ForeignKey("tree_ibfk_1", (1,), "tree", ("id",)),))


class Place:
    """A load of one table.  events: what happens, in order.  meanwhile, after: what others do while Spark works, and
    before the load is stored."""

    def __init__(self, path: Path, table: TableDef, parent: TableDef | None, lost: int = 0, locked: bool = False):
        self.path, self.table, self.parent, self.lost, self.locked = path, table, parent, lost, locked
        self.events: list[str] = []
        self.meanwhile: Callable[[], object] = list
        self.after: Callable[[], object] = list
        self.removals, self.written = 0, WrittenTables()

    async def snapshot(self, place: Path) -> str:
        assert place.is_dir()
        self.events.append("snapshot")
        return str(place / "checkpoint")

    @asynccontextmanager
    async def hold(self, tables: Sequence[str]) -> AsyncIterator[None]:
        if self.locked:
            raise SqlError(1205, "HY000", "Lock wait timeout exceeded")
        self.events.append(f"hold {', '.join(tables)}")
        yield
        self.events.append("let go")

    async def build(self, spec: LoadSpec) -> AsyncIterator[dict[str, Any]]:
        self.events.append(f"build with {len(spec.keys)} keys")
        self.meanwhile()
        yield {"result": spec.checkpoint}

    async def gone(self, **arguments: Any) -> int:
        self.events.append("look again")
        return self.lost

    def run(self, statements: bool = False) -> str:
        keys: Any = SimpleNamespace(parents=lambda table: [(k, self.parent, "why") for k in table.foreign_keys],
                                    removals=lambda names: self.removals if names else 0)
        spec = LoadSpec(self.table, (), str(self.path / "sst"), "")

        async def done() -> str:
            async with ParentsOfLoad(keys, self.written, self.table, self.path, self.snapshot, self.hold) as parents:
                steps = [s async for s in parents.built(self.build, self.gone, spec, statements)]
                self.after()
                parents.refuse_emptied()
                return str([s["result"] for s in steps if "result" in s][-1])

        return asyncio.run(done())


def test_parents_are_held_while_the_load_is_stored(tmp_path: Path) -> None:
    place = Place(tmp_path, CHILD, PARENT)
    assert place.run().endswith("parents-1/checkpoint")
    assert place.events == ["snapshot", "build with 1 keys", "hold p", "let go"]


def test_nothing_is_held_for_statements_and_without_a_parent(tmp_path: Path) -> None:
    for n, (table, parent, statements, snapshots) in enumerate((
            (CHILD, PARENT, True, 1), (CHILD, None, False, 1), (PARENT, None, False, 0))):
        (tmp_path / str(n)).mkdir()
        place = Place(tmp_path / str(n), table, parent)
        place.run(statements)
        assert place.events == ["snapshot"] * snapshots + [f"build with {snapshots} keys"]


@pytest.mark.parametrize("lost", [0, 2])
def test_keys_are_looked_up_again_after_a_removal(tmp_path: Path, lost: int) -> None:
    place = Place(tmp_path, CHILD, PARENT, lost)

    def removed() -> None:
        place.removals += 1

    place.meanwhile = removed
    last = place.run()
    again = ["build with 1 keys"] if lost else []
    assert place.events == ["snapshot", "build with 1 keys", "hold p", "snapshot", "look again", *again, "let go"]
    assert last.endswith("parents-2/checkpoint" if lost else "parents-1/checkpoint")


def test_a_table_that_refers_to_itself_may_be_emptied(tmp_path: Path) -> None:
    place = Place(tmp_path, TREE, TREE)

    def written() -> None:
        place.written.note(Ingest("tree", (), 0, 0))

    place.meanwhile = written
    place.run()
    assert "look again" in place.events
    place.after = written
    (tmp_path / "next").mkdir()
    place.path = tmp_path / "next"
    with pytest.raises(SqlError) as found:
        place.run()
    assert found.value.code == 1412 and place.events[-1] == "let go"


def test_a_transaction_that_does_not_end(tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="Lock wait timeout exceeded; nothing was loaded: load again") as found:
        Place(tmp_path, CHILD, PARENT, locked=True).run()
    assert found.value.code == 1205


def test_a_new_key_waits_for_loads_that_are_being_stored(tmp_path: Path) -> None:
    """They were made without the key, so its rows are counted after them."""
    async def done() -> None:
        ingests: list[asyncio.Future[Any]] = []

        def submit(body: Ingest) -> asyncio.Future[Any]:
            ingests.append(asyncio.get_running_loop().create_future())
            return ingests[-1]

        bulk = BulkJobs(None, SimpleNamespace(submit=submit), SimpleNamespace(tables=list), tmp_path / "snapshots")
        loads = [asyncio.ensure_future(bulk._ingested(Ingest(name, (), 1, 0))) for name in ("C", "other")]
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(bulk.stored(CHILD))
        await asyncio.sleep(0)
        assert not waiting.done()
        ingests[0].set_result(Done(0))
        await waiting
        ingests[1].set_result(Done(0))
        await asyncio.gather(*loads)
        await bulk.stored(replace(CHILD, name="other"))

    asyncio.run(done())
