"""The link against real worker processes that die in every way: each change is applied exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from noria.core.codec import VERSION
from noria.core.errors import SqlError, unfilled
from noria.dataflow.messages.packets import (
    Envelope,
    Hello,
    Ingest,
    Inspect,
    Migrate,
    Migrated,
    Packet,
    Read,
    Rows,
    Wrote,
)
from noria.runtime.link.link import LinkState, WorkerUnavailable
from noria.runtime.transport import wire
from noria.runtime.transport.packet_codec import PACKETS
from noria.runtime.transport.wire import WireError
from runtime.fake_worker import commits, insert
from runtime.processes import linked, run, within


def test_changes_and_questions_are_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path) as (link, nursery):
            wrote = await link.change(insert(7))
            assert wrote.seq == 1 and wrote.results[0].last_insert_id == 7
            assert (await link.ask(Read(0, "v", []))).rows == [7]
            assert (await link.change(Migrate((), ("CREATE",)))).seq == 2
            assert (await link.request(Ingest("t", (), 9))).error is None
            assert (await link.request(Inspect(0, "stats"))).value["incarnation"] == 1
            assert [c["values"] for c in commits(nursery.config.shard_dir)] == [[7], [], [9]]

    run(test)


def test_concurrent_writes_share_commits_and_get_their_own_results(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path) as (link, nursery):
            replies = await asyncio.gather(*(link.change(insert(i)) for i in range(100)))
            assert [[r.last_insert_id for r in reply.results] for reply in replies] == [[i] for i in range(100)]
            groups = commits(nursery.config.shard_dir)
            assert len(groups) <= 4
            assert [v for g in groups for v in g["values"]] == list(range(100))

    run(test)


@pytest.mark.parametrize("table", ["die", "die_after"])
def test_a_change_that_loses_its_worker_is_applied_once(tmp_path: Path, table: str) -> None:
    """Killed before the commit, or between commit and answer: sent again, applied once, its result learned.
    ("die" dies on every fresh try, so it fails after the second.)"""

    async def test() -> None:
        async with linked(tmp_path) as (link, nursery):
            assert (await link.change(insert(1))).seq == 1
            if table == "die":
                with pytest.raises(WorkerUnavailable, match="2 times"):
                    await within(link.change(insert(2, table)))
            else:
                wrote = await within(link.change(insert(2, table)))
                assert wrote.results[0].last_insert_id == 2
            await within(link.up())
            await within(link.change(insert(3)))
            expected = [[1], [3]] if table == "die" else [[1], [2], [3]]
            assert [c["values"] for c in commits(nursery.config.shard_dir)] == expected

    run(test)


def test_a_change_that_cannot_be_encoded_delays_no_other(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path) as (link, _):
            good = insert(1)
            bad = replace(good, statements=(good.statements[0]._replace(rows=((object(),),)),))
            refused, accepted = link.submit(bad), link.submit(insert(2))
            results = [r for reply in await within(asyncio.gather(refused, accepted)) for r in reply.results]
            assert results[0].error is not None and "cannot be sent" in results[0].error.message
            assert (await within(link.change(insert(3)))).results[0].last_insert_id == 3

    run(test)


def test_random_kills_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path) as (link, nursery):
            async def client(number: int) -> None:
                for i in range(60):
                    value = number * 1000 + i
                    reply = await link.change(insert(value))
                    assert reply.results[0].last_insert_id == value

            clients = [asyncio.create_task(client(n)) for n in range(8)]
            for _ in range(3):
                await within(link.up())
                before = link.stats.changes
                while link.stats.changes < before + 40 and not all(c.done() for c in clients):
                    await asyncio.sleep(0)
                nursery.children[-1].kill()
                await asyncio.to_thread(nursery.children[-1].wait)
            await within(asyncio.gather(*clients))
            seen = [v for c in commits(nursery.config.shard_dir) for v in c["values"]]
            assert sorted(seen) == sorted(n * 1000 + i for n in range(8) for i in range(60))
            per_client = {n: [v for v in seen if v // 1000 == n] for n in range(8)}
            assert all(values == sorted(values) for values in per_client.values())
            seqs = [c["seq"] for c in commits(nursery.config.shard_dir)]
            assert seqs == list(range(1, len(seqs) + 1))

    run(test)


def test_a_question_fails_or_is_retried_when_its_worker_dies(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path) as (link, nursery):
            os.kill(nursery.children[0].pid, signal.SIGSTOP)
            plain = asyncio.create_task(link.ask(Read(0, "v", [])))
            patient = asyncio.create_task(link.ask(Inspect(0, "stats"), retry=True))
            await asyncio.sleep(0)
            nursery.children[0].kill()
            with pytest.raises(WorkerUnavailable, match="try again"):
                await within(plain)
            with pytest.raises(WorkerUnavailable, match="down since"):
                await link.ask(Read(0, "v", []))
            assert (await within(patient)).value["incarnation"] == 2

    run(test)


def test_the_program_is_restored_before_changes_are_sent_again(tmp_path: Path) -> None:
    order: list[str] = []

    async def test() -> None:
        async with linked(tmp_path) as (link, _):
            async def on_hello(hello: Hello) -> None:
                order.append(f"hello {hello.last_seq} {hello.recipe}")
                assert link.state is LinkState.RECOVERING
                reply = await link.recover(Migrate((), hello.recipe, durable=False))
                order.append(f"recovered {reply.seq}")

            link.on_hello = on_hello
            await link.change(Migrate((), ("CREATE TABLE t",)))
            await within(link.change(insert(5, "die_after")))
            order.append("answered")
            assert order == ["hello 2 ('CREATE TABLE t',)", "recovered 0", "answered"]

    run(test)


def test_a_frozen_worker_is_killed_and_replaced(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path, lease_ms=1000) as (link, nursery):
            os.kill(nursery.children[0].pid, signal.SIGSTOP)
            reply = await within(link.change(insert(4)))
            assert reply.results[0].last_insert_id == 4
            assert nursery.children[0].wait(10) == -signal.SIGKILL
            assert [c["incarnation"] for c in commits(nursery.config.shard_dir)] == [2]

    run(test)


def test_broken_messages_are_dropped_and_strangers_disconnected(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path) as (link, _):
            assert link.peer is not None
            broken = wire.encode(Envelope(1, -1, 5, Read(0, "v", [])))[:-1] + b"?"  # a number for a bool
            link.peer.transport.write(broken)
            assert (await link.change(insert(1))).seq == 1  # the worker goes on
            reader, writer = await asyncio.open_unix_connection(wire.socket_path(link.endpoint))
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n")
            assert await within(reader.read()) == b""
            writer.close()
            assert link.stats.dropped == 2, "the worker's refusal of an unknown question, and the stranger"
            assert (await link.change(insert(2))).seq == 2

    run(test)


def test_a_request_or_an_answer_that_cannot_be_read_is_an_error_of_its_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path) as (link, nursery):
            assert link.peer is not None
            number, question = link.book.register(Read(0, "v", []), False, asyncio.get_running_loop())
            link.peer.transport.write(wire.encode(Envelope(1, -1, 0, question.body))[:-1] + b"?")
            assert "the worker cannot read the request" in str((await within(question.future)).error)
            number, question = link.book.register(Read(0, "v", []), False, asyncio.get_running_loop())
            link._receive(link.peer, unreadable(Rows(number, [], unfilled("v"))))
            with pytest.raises(SqlError, match="the worker's answer cannot be read: the body of packet 0 of sender 0"):
                await within(question.future)
            assert (await link.change(insert(1))).seq == 1 and len(nursery.children) == 1

    run(test)


@pytest.mark.parametrize("message", [Wrote(1, ()), Migrated(0, ()), None])
def test_a_worker_that_sends_an_unreadable_message_is_replaced(tmp_path: Path, message: Packet | None) -> None:
    """It is unknown which changes the worker has made, so those in flight are sent to the next worker, which knows."""
    async def test() -> None:
        async with linked(tmp_path) as (link, nursery):
            assert link.peer is not None
            change = asyncio.ensure_future(link.change(insert(1)))
            link._receive(link.peer, WireError("no message") if message is None else unreadable(message))
            assert (await within(change)).seq == 1 and len(nursery.children) == 2
            assert [c["values"] for c in commits(nursery.config.shard_dir)] == [[1]]

    run(test)


def unreadable(body: Packet) -> wire.Item:
    """A packet of worker 0 with one field more than its type has."""
    records = msgspec.msgpack.decode(PACKETS.encode(body)[1:])
    records[-1].append("more")
    data = b"\0\0" + bytes([VERSION]) + msgspec.msgpack.encode(records)
    head = wire.HEADER.pack(wire.MAGIC, wire.WIRE_VERSION, wire.FrameKind.ENVELOPE, 0, 0, 1, 0, len(data))
    (item,) = wire.FrameDecoder().feed(head + data)
    assert isinstance(item, WireError)
    return item


def test_messages_of_a_replaced_incarnation_are_dropped(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path) as (link, nursery):
            nursery.children[0].kill()
            await asyncio.to_thread(nursery.children[0].wait)
            await within(link.change(insert(1)))
            reader, writer = await asyncio.open_unix_connection(wire.socket_path(link.endpoint))
            writer.write(wire.signal(wire.FrameKind.JOIN, 1, 0, number=1))
            writer.write(wire.encode(Envelope(1, 0, 0, Hello(0, 1, 0, 0, (), ()))))
            assert await within(reader.read()) == b""
            writer.close()
            assert link.stats.workers == 2 and link.state is LinkState.UP

    run(test)


def test_closing_ends_the_worker_and_fails_what_waits(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path, restart=False) as (link, nursery):
            os.kill(nursery.children[0].pid, signal.SIGSTOP)
            waiting = asyncio.create_task(link.change(insert(1)))
            await asyncio.sleep(0)
            await link.close()
            with pytest.raises(WorkerUnavailable, match="closed"):
                await within(waiting)
            os.kill(nursery.children[0].pid, signal.SIGCONT)
            assert await asyncio.to_thread(nursery.children[0].wait, 20) == 0
            with pytest.raises(WorkerUnavailable, match="closed"):
                await link.change(insert(2))

    run(test)
