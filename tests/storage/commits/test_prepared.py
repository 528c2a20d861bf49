"""Statements over several shards: a prepared group is on disk until its decision, and applied once."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import WriteBatch

from noria.core.errors import SqlError
from noria.core.errors.codes import DISK_FULL
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.statements import Delete, Insert, Load, Statement, WriteResult
from noria.core.types import INT, Column, TableDef
from noria.dataflow.messages.packets import Decide, Prepare, Write
from noria.storage.rocks.errors import StoreDamaged
from noria.storage.tables import meta
from noria.storage.tables.sst import entries, write_file
from storage.shard import Shard, T, insert


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path / "s")
    yield shard
    shard.store.close()


def delete(id: int) -> Statement:
    return Delete("t", call("eq", col(0, INT, False), const(id, INT)))


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("crash", [(), (0,), (1,), (0, 1)])
def test_a_group_is_applied_at_its_decision_and_once(shard: Shard, commit: bool, crash: tuple[int, ...]) -> None:
    first = shard.send(Prepare((insert(1), insert(2)), "g", 0))
    if 0 in crash:
        shard.reopen()
    assert shard.store.groups()[0] == (("g", 0),) and shard.rows() == set()
    assert shard.send(Prepare((insert(1), insert(2)), "g", 0), shard.seq) == first
    decided = shard.send(Decide("g", commit))
    assert decided == (first if commit else [])
    if 1 in crash:
        shard.reopen()
    assert shard.store.groups()[0] == () and shard.rows() == ({1, 2} if commit else set())
    assert shard.send(Decide("g", commit), shard.seq) == decided
    assert shard.send(Decide("g", True)) == []
    assert shard.send(Write((insert(3),)))[0].affected == 1


def test_meanwhile_every_other_change_is_refused(shard: Shard) -> None:
    shard.send(Prepare((insert(1),), "g", 0))
    changes: list[Callable[[], object]] = [
        lambda: shard.send(Write((insert(5),))), lambda: shard.send(Write((insert(5)._replace(table="u"), insert(5)))),
        lambda: shard.send(Prepare((insert(5),), "h", 0)),
        lambda: shard.store.set_recipe(("u",), 1, shard.seq + 1),
        lambda: shard.store.ingest("t", {}, 0, 0, 1, shard.seq + 1)]
    for change in changes:
        with pytest.raises(SqlError, match="the group g is prepared"):
            change()
    assert shard.rows() == set() and shard.store.recipe() == ("t",) and shard.store.groups()[0] == (("g", 0),)


def test_a_group_that_a_full_disk_keeps_from_being_prepared_locks_nothing(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(nbytes: int) -> None:
        raise SqlError(*DISK_FULL, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(shard.store.engine, "make_ready", full)
        (result,) = shard.send(Prepare((insert(1),), "g", 0))
    assert result.error is not None and result.error.code == DISK_FULL.number
    assert not shard.store.transactions.locks
    assert shard.send(Write((insert(1),)))[0].error is None


def test_what_an_earlier_version_prepared_is_done(shard: Shard) -> None:
    """It did not tell the ids of rows that have their own."""
    shard.store.create_table(TableDef("n", (Column("id", INT, False, auto_increment=True),), (0,)))
    shard.send(Prepare((insert(7)._replace(table="n"),), "g", 0))
    now = shard.store._groups.prepared["g"]
    assert [r.row_id for r in now.results] == [7]
    then = replace(now, results=tuple(r._replace(row_id=0) for r in now.results))
    shard.store._groups.prepared["g"] = then
    assert [r.affected for r in shard.send(Decide("g", True))] == [1]


def test_other_tables_are_written_meanwhile(shard: Shard) -> None:
    shard.store.create_table(replace(T, name="u"))
    tried = shard.send(Prepare((insert(1),), "g", 0))
    assert shard.send(Write((insert(5)._replace(table="u"),)))[0].affected == 1
    assert shard.send(Decide("g", True)) == tried and shard.rows() == {1}


@pytest.mark.parametrize("dropped", [False, True])
def test_a_damaged_file_keeps_nothing_but_its_table(shard: Shard, dropped: bool) -> None:
    """What was decided is done when the file can be read again, and is forgotten with the table."""
    shard.store.create_table(replace(T, name="u"))
    shard.send(Prepare((insert(1),), "g", 0))
    damage = shard.store.engine.damage
    damage.note(shard.store.table("t").family, "Corruption: block checksum mismatch")
    for _ in range(2):
        assert [r.error.code for r in shard.send(Decide("g", True))] == [1194]
        assert shard.send(Write((insert(5),)))[0].error.code == 1194
        shard.seq += 1
        shard.store.set_recipe(("u",), 1, shard.seq)
        assert shard.send(Write((Insert("u", (0,), [(shard.seq,)]),)))[0].error is None
        shard.reopen()
        assert shard.store.groups()[0] == (("g", 0),)
    if dropped:
        shard.store.drop_table("t")
        shard.seq += 1
        shard.store.set_recipe((), 1, shard.seq)
        shard.reopen()
        assert shard.store.groups()[0] == () and shard.send(Decide("g", True)) == []
    else:
        shard.store.engine.damage.forget(shard.store.table("t").family)
        assert shard.send(Decide("g", True))[0].affected == 1 and shard.rows() == {1}


def test_a_failing_part_prepares_nothing_and_a_failing_coordinator_decides_nothing(shard: Shard) -> None:
    shard.send(Write((insert(1),)))
    for body in (Prepare((insert(2), insert(1)), "g", 0), Write((insert(2), insert(1)), "g")):
        did = shard.send(body)
        assert did[0] == WriteResult() and did[1].error.code == 1062  # and it is told whose fault it is
        assert shard.store.groups()[0] == () == shard.store.groups()[1] and shard.rows() == {1}


def test_a_decision_is_kept_until_it_is_to_be_forgotten(shard: Shard) -> None:
    shard.send(Write((insert(1),), "g"))
    shard.send(Write((), "h"))
    shard.reopen()
    assert shard.store.groups()[1] == ("g", "h") and shard.rows() == {1}
    shard.send(Write((insert(2),), "", ("g",)))
    shard.send(Write((), "", ("h",)))
    assert shard.store.groups()[1] == ()


def test_what_is_done_once_is_remembered_with_it(shard: Shard) -> None:
    shard.send(Write((insert(1),), idempotency_key="once:a/1"))
    assert shard.send(Write((insert(2), insert(1)), idempotency_key="once:b/1"))[0].error.code == 1062
    shard.send(Write((insert(3),), "g", idempotency_key="once:c/1"))
    shard.reopen()
    assert set(shard.store.groups()[1]) == {"once:a/1", "once:c/1", "g"} and shard.rows() == {1, 3}
    shard.send(Write((), forget=("once:a/1", "once:c/1")))
    assert shard.store.groups()[1] == ("g",)


@pytest.mark.parametrize("spoil", [lambda v: v[:-1], lambda v: v[:2], lambda v: v[:9] + b"!" + v[10:]])
def test_a_damaged_record_is_told_when_the_store_opens(shard: Shard, spoil: Callable[[bytes], bytes]) -> None:
    shard.send(Prepare((insert(1),), "g", 0))
    engine = shard.store.engine
    stored = meta.get(engine, b"prepared:g")
    assert stored is not None
    batch = WriteBatch(raw_mode=True)
    meta.put(engine, batch, b"prepared:g", spoil(stored))
    engine.commit(batch)
    del batch
    with pytest.raises(StoreDamaged, match="prepared group is damaged"):
        shard.reopen()


@pytest.mark.parametrize("seed", range(3))
def test_shards_agree_with_a_model_whenever_any_of_them_starts_again(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    shards = [Shard(tmp_path / str(n)) for n in range(3)]
    model: list[set[int]] = [set(), set(), set()]
    told: dict[int, tuple[str, ...]] = {}
    for number in range(40):
        group, undecided = f"g{number}", rng.random() < 0.2
        ids = {w: rng.randrange(6) for w in sorted(rng.sample(range(3), 2))}
        parts = {w: rng.choice([insert, delete])(id) for w, id in ids.items()}
        one, other = ids
        fine = not any(isinstance(s, Insert) and ids[w] in model[w] for w, s in parts.items())
        if not shards[other].send(Prepare((parts[other],), group, one))[0].error and not undecided:
            shards[one].send(Write((parts[one],), group, told.pop(one, ())))
        for w in ids:
            if rng.random() < 0.4:
                shards[w].reopen()
        for s in shards:  # whoever comes next learns from what the workers say
            for found, coordinator in s.store.groups()[0]:
                decide = Decide(found, found in shards[coordinator].store.groups()[1])
                answer = s.send(decide)
                assert s.send(decide, s.seq) == answer
        told[one] = shards[one].store.groups()[1]
        for w, statement in parts.items() if fine and not undecided else ():
            (set.add if isinstance(statement, Insert) else set.discard)(model[w], ids[w])
        assert [s.rows() for s in shards] == model, f"seed {seed}, group {number}"
    for s in shards:
        s.store.close()


# ------------------------------------------------------------------ a bulk load's part
def load_of(shard: Shard, path: Path, ids: range) -> Load:
    path.mkdir()
    batch = pa.record_batch([pa.array(list(ids), pa.int32())], ["id"])
    file = write_file(str(path / "t.sst"), [entries(shard.store.tables()["t"], None, batch)])
    assert file is not None
    return Load("t", (("t1", (file.path,)),), len(ids))


def staged(shard: Shard) -> list[str]:
    return sorted(p.name for p in Path(shard.path).glob("ingest*"))


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_a_staged_load_is_kept_until_it_is_decided(shard: Shard, tmp_path: Path, commit: bool, reopened: bool) -> None:
    shard.send(Write((Insert("t", (0,), ((1,),)),)))
    load = load_of(shard, tmp_path / "files", range(10, 20))
    assert shard.send(Prepare((load,), "g", 0))[0].affected == 10
    if reopened:
        shutil.rmtree(tmp_path / "files")
        shard.reopen()
    assert shard.rows() == {1} and shard.store.groups()[0] == (("g", 0),) and staged(shard) == ["ingest-g"]
    with pytest.raises(SqlError, match="group g is prepared"):
        shard.send(Write((Insert("t", (0,), ((2,),)),)))
    with pytest.raises(SqlError, match=r"a load into t is staged .* start the server"):
        shard.store.checkpoint(str(tmp_path / "checkpoint"))
    results = shard.send(Decide("g", commit))
    for _ in range(2):
        assert [r.affected for r in results] == ([10] if commit else [])
        assert shard.rows() == ({1, *range(10, 20)} if commit else {1}) and not staged(shard)
        assert shard.store.groups() == ((), ()) and shard.store.table("t").counters.rows == (11 if commit else 1)
        shard.reopen()
        results = shard.send(Decide("g", commit), shard.seq)  # a resend


def test_the_coordinators_part_of_a_load_is_the_decision(shard: Shard, tmp_path: Path) -> None:
    load = load_of(shard, tmp_path / "files", range(5))
    assert shard.send(Write((load,), "g"))[0].affected == 5
    shard.reopen()
    assert shard.rows() == set(range(5)) and shard.store.groups() == ((), ("g",))
    with pytest.raises(SqlError, match="Duplicate entry"):
        shard.send(Write((load_of(shard, tmp_path / "again", range(4, 6)),), "h"))
    assert shard.store.groups() == ((), ("g",)) and shard.rows() == set(range(5)) and not staged(shard)


def test_what_cannot_be_taken_is_not_prepared(shard: Shard, tmp_path: Path) -> None:
    shard.send(Write((Insert("t", (0,), ((3,),)),)))
    (result,) = shard.send(Prepare((load_of(shard, tmp_path / "files", range(5)),), "g", 0))
    assert result.error.code == 1062 and not staged(shard) and shard.store.groups() == ((), ())


def test_staged_files_that_are_gone_are_damage(shard: Shard, tmp_path: Path) -> None:
    shard.send(Prepare((load_of(shard, tmp_path / "files", range(5)),), "g", 0))
    (file,) = (Path(shard.path) / "ingest-g").iterdir()
    file.unlink()
    with pytest.raises(StoreDamaged, match="staged for a load into t, is gone"):
        shard.send(Decide("g", True))
