"""Bytes on the socket between front end and worker: whatever they are, `wire.FrameDecoder` gives messages or
`WireError`, in bounded time, and after an unreadable body the next message is whole.

    FUZZ_WIRE_CASES=5000   FUZZ_SEED=… (printed; in CI always the same)
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chaos.fuzz.spoil import mutated, pieces
from noria.core.errors import SqlError
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.statements import Insert
from noria.core.types import INT, TEXT, Column, TableDef
from noria.dataflow.messages.packets import (
    AddView,
    CreateTable,
    Done,
    Envelope,
    Inspect,
    Migrate,
    PeerPacket,
    Read,
    Rows,
    Write,
)
from noria.dataflow.messages.peer_messages import EncodedRows, ExchangeDelta
from noria.plan.mir import Base, Filter
from noria.plan.view import ViewDef
from noria.runtime.transport import wire
from noria.runtime.transport.wire import FrameDecoder, FrameKind, Signal, WireError
from seeds import seed

pytestmark = pytest.mark.timeout(0)
CASES = int(os.environ.get("FUZZ_WIRE_CASES", "5000"))
SEED = seed("FUZZ_SEED")
SLOW_S = 60.0  # no case takes so long
MORE_BYTES = 2**30  # of addresses: what is announced and not sent is not allocated


def stream() -> list[bytes]:
    return [wire.encode(Envelope(3, -1, 9, Write((Insert("t", (0, 1), ((1, "x"), (None, "y"))),)), ((0, 5),))),
            wire.signal(FrameKind.HEARTBEAT, 3, -1), wire.encode(Envelope(3, -1, 0, Read(2**40, "v", [(1, "a")]))),
            wire.signal(FrameKind.CANCEL, 3, -1, 17), wire.encode(Envelope(3, -1, 0, Inspect(1, "stats"))),
            *[wire.encode(Envelope(3, 0, 1, body)) for body in bodies()]]


def bodies() -> list[Any]:
    """Packets with all that the encoding has: plans, tables, errors, arrays, Arrow data, all kinds of values."""
    table = TableDef("t", (Column("id", INT, False), Column("s", TEXT)), (0,), table_id=3)
    plan = Filter(Base(table), call("eq", col(0, INT, False), const(3, INT)))
    view = ViewDef("v", plan, (0,), 2, empty_row=(None, Decimal("1.5")))
    parcel = EncodedRows(np.arange(6).reshape(2, 3), np.ones(3, np.int64), pa.array(["a", "b"], pa.large_string()))
    rows = tuple((i, "x", 1.5) for i in range(20))
    return [Migrate((CreateTable(table), AddView(view))), PeerPacket(ExchangeDelta(3, parcel), 7),
            Write((Insert("t", (0, 1), rows),)),
            Rows(5, pa.table({"a": [1, None], "b": ["x", "y"]}), SqlError(1062, "23000", "twice")),
            Rows(6, pa.table({"a": np.arange(20_000)})),
            Done(7, {"a": [1, {2.5}, frozenset({"x"})], "b": date(2024, 1, 2), "c": timedelta(1), "d": (b"x", 2**70)})]


def _spoiled(message: bytes, chance: random.Random) -> bytes:
    """With a header that announces the length that it has: what is wrong is in the body."""
    head = wire.HEADER.unpack_from(message)
    buffers, length = head[3], head[-1]
    start = wire.HEADER.size + 8 * buffers
    if head[2] != FrameKind.ENVELOPE or not length:
        return message
    what = chance.random()
    if what < 0.8:
        body = mutated(message[start:start + length], chance)
    else:
        body = message[start:start + 3] + chance.choice((
            b"\x91" * chance.randrange(1, 5_000), b"\xdd\xff\xff\xff\xff", b"\x91\xdb\xff\xff\xff\xff",
            chance.randbytes(chance.randrange(200))))
    return wire.HEADER.pack(*head[:-1], len(body)) + message[wire.HEADER.size:start] + body + message[start + length:]


@pytest.fixture
def little_memory() -> Iterator[None]:
    """This process cannot grow by more than MORE_BYTES until the test is over."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + MORE_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
def test_any_bytes(capfd: pytest.CaptureFixture[str]) -> None:
    chance, began, errors, read = random.Random(SEED), time.monotonic(), 0, 0
    messages = stream()
    for number in range(CASES):
        chosen = [chance.choice(messages) for _ in range(chance.randrange(1, 4))]
        if chance.random() < 0.1:
            sent = chance.randbytes(chance.randrange(90))
        elif chance.random() < 0.5:
            sent = b"".join(_spoiled(message, chance) for message in chosen)
        else:
            sent = mutated(b"".join(chosen), chance)
        reader, start = FrameDecoder(), time.monotonic()
        try:
            for piece in pieces(sent, chance):
                for item in reader.feed(piece):
                    assert isinstance(item, Envelope | Signal | WireError), (SEED, number, item)
                    errors += isinstance(item, WireError)
                    read += 1
        except WireError:
            errors += 1
        except Exception as e:
            raise AssertionError(f"FUZZ_SEED={SEED}, case {number}: {e!r} for {sent!r}") from e
        assert time.monotonic() - start < SLOW_S, f"FUZZ_SEED={SEED}, case {number}: {sent!r}"
    with capfd.disabled():
        print(f"\nwire: FUZZ_SEED={SEED}, {CASES} cases in {time.monotonic() - began:.0f} s; {read} messages, "
              f"{errors} of them or streams refused")
