"""What is read of prepared groups runs no code: neither the pickles of formats before 4, nor what a backup holds."""

from __future__ import annotations

import contextlib
import pickle
import random
import struct
import tarfile
import zlib
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rocksdict import WriteBatch

from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import DEFAULT, Delete, Insert, Load, Move, Update, WriteResult
from noria.core.types import DOUBLE, INT, TEXT
from noria.runtime.transport.shard_owner import ShardOwner
from noria.storage.commits import prepared
from noria.storage.commits.prepared import GROUPS, Group
from noria.storage.format import older_groups
from noria.storage.format.catalog import FORMAT
from noria.storage.offline import backup
from noria.storage.offline.check import StoreCheck
from noria.storage.rocks.errors import StoreError
from noria.storage.store import RocksStore
from noria.storage.tables import meta
from seeds import seed
from storage.shard import Shard, insert

OLD = Path(__file__).parent / "data" / "format-3.tar.xz"  # one table, one group that is prepared
THIRD = call("eq", col(0, INT, False), const(3, INT))
STATEMENTS = (
    Insert("t", (0, 1), [(1, "a"), (None, DEFAULT), (2**62, 1.5), (b"x", True), (Decimal("1.5"), date(2024, 1, 2)),
                         (datetime(2024, 1, 2, 3, 4, 5, 6), timedelta(1))], numbered=(1,)),
    Update("t", ((1, const("x", TEXT)), (2, call("add", col(2, DOUBLE), const(1.0, DOUBLE)))), THIRD),
    Delete("t", THIRD), Move("t", (b"k",), (b"r",)), Load("t", (("t1", ("a.sst",)),), 7))
RESULTS = (WriteResult(1, 2, 3),)


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (f"open({str(self.path)!r}, 'w').close()",)


def framed(data: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(data)) + data


def put(store: RocksStore, value: bytes, format: int) -> None:
    batch = WriteBatch(raw_mode=True)
    meta.put(store.engine, batch, b"prepared:g", framed(value))
    meta.put(store.engine, batch, b"format", str(format).encode())
    store.engine.commit(batch)


@pytest.mark.parametrize("format", [1, 3, 4])
@pytest.mark.parametrize("disguise", [lambda p: (0, (), (p,)), lambda p: (0, (insert(p),), ()), lambda p: p])
def test_a_backup_with_a_pickle_in_it_runs_nothing(tmp_path: Path, format: int, disguise: Callable[[Any], Any]) -> None:
    ran, shard = tmp_path / "ran", Shard(tmp_path / "s")
    put(shard.store, pickle.dumps(disguise(Payload(ran))), format)
    shard.store.checkpoint(str(tmp_path / "checkpoint"))
    shard.store.close()
    backup.make(tmp_path / "checkpoint", tmp_path / "b", "now", "0", lambda done, total: None)
    backup.restore(tmp_path / "b", tmp_path / "new", lambda done, total: None)
    base = str(tmp_path / "new" / "worker-0" / "base")
    report = StoreCheck(base, lambda *step: None, False, 0, 1).run()
    assert any("prepared group g cannot be read" in f for f in report.findings)
    lineage = ShardOwner(tmp_path / "new" / "worker-0", int((tmp_path / "new" / "epoch").read_text()) + 1)
    with pytest.raises(StoreError):
        RocksStore(base, PlainSymbols(), fence=lineage.incarnation)
    lineage.release()
    assert not ran.exists()


def test_a_data_directory_of_format_3_is_opened_and_its_group_decided(tmp_path: Path) -> None:
    with tarfile.open(OLD) as packed:
        packed.extractall(tmp_path, filter="data")
    assert StoreCheck(str(tmp_path / "base"), lambda *step: None, False, 0, 1).run().findings == []
    for _ in range(2):  # once as it was, once as this version has written it
        store = RocksStore(str(tmp_path / "base"), PlainSymbols())
        assert store.groups()[0] == (("g", 1),) and meta.get(store.engine, b"format") == str(FORMAT).encode()
        store.close()
    store = RocksStore(str(tmp_path / "base"), PlainSymbols())
    results, _ = store.decide("g", True, 2, 1)
    assert [r.affected for r in results] == [2, 1, 1]
    assert sorted(store.scan("t", None, 10)[0].columns[0].tolist()) == [1, 3, 4]
    store.close()


def test_pickles_of_groups_are_read_as_unpickling_would() -> None:
    sent = (1, STATEMENTS, RESULTS)
    assert older_groups.read(pickle.dumps(sent, protocol=5)) == sent
    assert GROUPS.decode(GROUPS.encode(Group(*sent))) == Group(*sent)


@pytest.mark.parametrize("value", [print, ValueError("x"), Path("x"), {1}, complex(1), pickle.loads, Shard])
def test_pickles_of_anything_else_are_refused(value: Any) -> None:
    with pytest.raises(older_groups.OlderGroup):
        older_groups.read(pickle.dumps((0, (value,), ()), protocol=5))


def test_damaged_pickles_are_refused_or_plain() -> None:
    whole, chance = pickle.dumps((1, STATEMENTS, RESULTS), protocol=5), random.Random(seed("FUZZ_SEED"))
    for _ in range(3_000):
        spoiled = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        with contextlib.suppress(older_groups.OlderGroup):
            older_groups.read(bytes(spoiled))


STORED = bytes.fromhex(  # a group as format 4 has it
    "01dc001298b173746174656d656e74732e496e73657274a17492000197c700019201a16192c0c7000b92cf4000000000000000cb3ff8"
    "00000000000092c40178c392c70306312e35c70a07323032342d30312d303292c71a08323032342d30312d30325430333a30343a3035"
    "2e303030303036c70c0a000000010000000000000000a56572726f7290c291019cad74797065732e53716c54797065c7090c4b696e64"
    "2e5445585440c2000000c70c0c436f6c6c6174696f6e2e4349c2c2a09094aa657870722e436f6e7374d60000000001c2a1789cad7479"
    "7065732e53716c54797065c70b0c4b696e642e444f55424c4540c2000000c70c0c436f6c6c6174696f6e2e4349c2c2a09094a8657870"
    "722e436f6cd60000000003c30294aa657870722e436f6e7374d60000000003c2cb3ff000000000000095a9657870722e43616c6cd600"
    "00000003c3a361646492d60000000004d600000000059cad74797065732e53716c54797065d70c4b696e642e494e5408c2000000c70c"
    "0c436f6c6c6174696f6e2e4349c2c3a0909cad74797065732e53716c54797065d70c4b696e642e494e5420c2000000c70c0c436f6c6c"
    "6174696f6e2e4349c2c2a09094a8657870722e436f6cd60000000008c20094aa657870722e436f6e7374d60000000008c20395a96578"
    "70722e43616c6cd60000000007c2a2657192d60000000009d6000000000a95b173746174656d656e74732e557064617465a174929201"
    "d600000000029202d60000000006d6000000000bc294b173746174656d656e74732e44656c657465a174d6000000000bc294af737461"
    "74656d656e74732e4d6f7665a17491c4016b91c4017295af73746174656d656e74732e4c6f6164a1749192a2743191a5612e73737407"
    "0096b673746174656d656e74732e5772697465526573756c74010203c00094ae70726570617265642e47726f75700195d60000000000"
    "d6000000000cd6000000000dd6000000000ed6000000000f91d60000000010")


def test_what_is_stored_stays_readable() -> None:
    """These bytes are on disk somewhere: a field that is added needs a default and comes last."""
    assert prepared._read(framed(STORED)) == Group(1, STATEMENTS, RESULTS)
