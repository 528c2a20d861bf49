"""The wire format: messages are decoded unchanged however the stream is cut, and invalid bytes raise errors."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.core.statements import Insert
from noria.core.types import INT, TEXT, Column, TableDef
from noria.dataflow.messages.packets import Done, Envelope, Inspect, PeerPacket, Rows, Write
from noria.dataflow.messages.peer_messages import EncodedRows, ExchangeDelta
from noria.runtime.transport import wire
from noria.runtime.transport.wire import FrameDecoder, FrameKind, Signal, WireError
from seeds import seed


def messages() -> list[wire.Item]:
    table = pa.table({"c0": np.arange(1000), "__key": pa.array(["ä"] * 1000)})
    return [
        Envelope(3, -1, 9, Write((Insert("t", (0, 1), ((1, "x"), (None, "y"))),)), ((0, 5), (1, 7))),
        Signal(FrameKind.HEARTBEAT, 3, -1),
        Envelope(3, 0, 0, Rows(2**40 + 1, table)),
        Signal(FrameKind.JOIN, 3, 0, 17),
        Envelope(3, -1, 0, Inspect(1, "stats")),
    ]


def encoded(item: wire.Item) -> bytes:
    if isinstance(item, Envelope):
        return wire.encode(item)
    assert isinstance(item, Signal)
    return wire.signal(item.kind, item.epoch, item.sender, item.number)


@given(st.lists(st.integers(1, 20_000), max_size=30))
def test_messages_survive_any_cuts(cuts: list[int]) -> None:
    stream = b"".join(map(encoded, messages()))
    reader, got, at = FrameDecoder(), [], 0
    for cut in [*cuts, len(stream)]:
        got += reader.feed(stream[at:at + cut])
        at += cut
    assert got == messages()


def test_decoded_arrow_data_is_aligned() -> None:
    [got] = FrameDecoder().feed(wire.encode(Envelope(1, 0, 0, Rows(1, pa.table({"x": np.arange(5000)})))))
    assert isinstance(got, Envelope) and isinstance(got.body, Rows)
    column = got.body.rows["x"].chunk(0).to_numpy()
    assert column.flags.aligned and column[-1] == 4999


@pytest.mark.parametrize("rows", [0, 1, 1_000, 20_000])
def test_a_table_is_decoded_unchanged(rows: int) -> None:
    table = pa.table([pa.array([None, *range(rows)][:rows], pa.int64()), pa.array(["ä"] * rows, pa.large_string())],
                     names=["a", "a"])
    sent = wire.encode(Envelope(1, 0, 0, Rows(1, table)))
    [got] = FrameDecoder().feed(sent)
    assert isinstance(got, Envelope) and got.body.rows.equals(table)
    assert (wire.HEADER.unpack_from(sent)[3] == 0) == (rows <= 1_000)  # without separate buffers


@pytest.mark.parametrize("rows", [0, 1, 7, 20_000])
@pytest.mark.parametrize("texts", [None, [], ["a", "", "ä\U0001f600"], ["x" * 20_000]])
def test_encoded_rows_are_decoded_unchanged(rows: int, texts: list[str] | None) -> None:
    columns = np.arange(3 * rows).reshape(3, rows)[::-1]  # not contiguous
    shown = None if texts is None else pa.array(texts, pa.large_string())
    sent = ExchangeDelta(4, EncodedRows(columns, -np.arange(rows), shown))
    (item,) = FrameDecoder().feed(wire.encode(Envelope(1, 0, 7, PeerPacket(sent, 2))))
    assert isinstance(item, Envelope) and isinstance(item.body, PeerPacket)
    got = item.body.message
    assert isinstance(got, ExchangeDelta) and (item.seq, item.body.version, got.node) == (7, 2, 4)
    assert (got.rows.columns == columns).all() and (got.rows.weights == sent.rows.weights).all()
    assert got.rows.columns.shape == (3, rows) and got.rows.texts == shown


def test_a_table_definition_is_decoded_to_one_object() -> None:
    table = TableDef("t", (Column("id", INT, False), Column("s", TEXT)), (0,), table_id=7)
    first, second = (pickle.loads(pickle.dumps(t)) for t in (table, replace(table)))
    assert first is second and first == table and first is not table


def test_an_answer_that_cannot_be_encoded_is_an_error_of_its_request() -> None:
    notes: list[str] = []
    (item,) = FrameDecoder().feed(wire.encode_answer(Envelope(1, 0, 0, Done(17, {"x": 1j})), notes.append))
    assert isinstance(item, Envelope) and isinstance(item.body, Done) and len(notes) == 1
    assert item.body.request == 17 and item.body.error is not None and "complex" in item.body.error.message


def test_an_unreadable_body_leaves_the_next_message_intact() -> None:
    good = Envelope(1, -1, 4, Inspect(1, "stats"))
    bad = bytearray(wire.encode(good))
    bad[-1] = 0x00
    items = FrameDecoder().feed(bytes(bad) + wire.encode(good))
    assert isinstance(items[0], WireError) and "packet 4 of sender -1" in str(items[0])
    assert items[1] == good


@pytest.mark.parametrize("damage, says", [
    (lambda b: b"GET / HTTP/1.1\r\n" + b, "do not begin with our header"),
    (lambda b: b[:4] + b"\x09" + b[5:], "wire version 9, this process speaks 2"),
    (lambda b: b[:32] + b"\xff" * 8 + b[40:], "is announced"),
])
def test_bytes_that_are_no_message(damage: object, says: str) -> None:
    message = wire.encode(Envelope(1, -1, 4, Inspect(1, "stats")))
    with pytest.raises(WireError, match=says):
        FrameDecoder().feed(damage(message))


def test_random_bytes_never_do_more_than_raise() -> None:
    rng = random.Random(seed())
    stream = b"".join(map(encoded, messages()))
    for _ in range(300):
        damaged = bytearray(stream)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            for item in FrameDecoder().feed(bytes(damaged)):
                assert isinstance(item, Envelope | Signal | WireError)
        except WireError:
            pass


def test_the_socket_is_private(tmp_path: Path) -> None:
    endpoint = wire.private_endpoint(tmp_path / "run")
    assert wire.socket_path(endpoint) == str(tmp_path / "run" / "front.sock")
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    (tmp_path / "run").chmod(0o755)
    with pytest.raises(WireError, match="chmod 700"):
        wire.private_endpoint(tmp_path / "run")
    deep = tmp_path / ("d" * 120)
    assert len(wire.socket_path(wire.private_endpoint(deep))) < 107
    with pytest.raises(WireError, match="ipc://PATH"):
        wire.socket_path("tcp://127.0.0.1:7")
