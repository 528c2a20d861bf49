"""Batched reads: waiting reads leave with the next packet, and each is answered as if it were sent alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from noria.core.errors import SqlError
from noria.core.limits import READ_PACKETS
from noria.dataflow.messages.packets import Read, ReadMany, ReadManyReply, Rows
from noria.runtime.link import read_batching
from noria.runtime.link.change_queue import PendingQuestion, PendingReplies
from noria.runtime.link.read_batching import KeyRows, ReadBatcher
from runtime.processes import run


class Line:
    """The packets that were sent, and the reads that wait."""

    def __init__(self) -> None:
        self.book = PendingReplies()
        self.sent: list[ReadMany] = []
        self.together = ReadBatcher(self.book, self.sent.append)

    def ask(self, key: Any, view: str = "v") -> PendingQuestion:
        _, question = self.book.register(Read(0, view, [(key,)], together=True), True, asyncio.get_running_loop())
        self.together.add(question.body)
        return question


def table(*rows: tuple[Any, int]) -> pa.Table:
    return pa.table({"c0": [value for value, _ in rows], "__key": [at for _, at in rows]})


def values(reply: Rows) -> list[Any]:
    assert isinstance(reply.rows, KeyRows)
    return list(reply.rows.of(reply.rows.batch.made(lambda t: t.column(0).to_pylist())))


def at_once(test: Callable[[Line], Any]) -> None:
    async def begun() -> None:
        await test(Line())

    run(begun)


def test_reads_that_wait_leave_with_the_next_packet() -> None:
    async def test(line: Line) -> None:
        for n in range(READ_PACKETS):
            line.ask(n)
            await asyncio.sleep(0)
        assert [p.alike[0].keys for p in line.sent] == [((n,),) for n in range(READ_PACKETS)]
        later = [line.ask("a"), line.ask("b", "w"), line.ask("c")]
        await asyncio.sleep(0)
        assert len(line.sent) == READ_PACKETS
        assert line.together.deliver(ReadManyReply(line.sent[0].request))
        await asyncio.sleep(0)
        assert [(a.view, a.keys) for a in line.sent[-1].alike] == [("v", (("a",), ("c",))), ("w", (("b",),))]
        of_v, of_w = line.sent[-1].alike
        line.together.deliver(ReadManyReply(line.sent[-1].request, (
            (of_v.requests, table((7, 1), (8, 0), (9, 1))), (of_w.requests, table()))))
        assert [values(a.future.result()) for a in later] == [[8], [], [7, 9]]
        assert later[0].future.result().rows.table().column(0).to_pylist() == [8]

    at_once(test)


def test_reads_of_one_turn_of_the_loop_share_a_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_batching, "READS_TOGETHER", 3)

    async def test(line: Line) -> None:
        for n in range(4):
            line.ask(n)
        assert not line.sent
        await asyncio.sleep(0)
        assert [len(p.alike[0].keys) for p in line.sent] == [3, 1]

    at_once(test)


def test_a_cancelled_read_is_not_sent_and_an_error_answers_all_others() -> None:
    async def test(line: Line) -> None:
        cancelled, waiting = line.ask(1), line.ask(2)
        del line.book.questions[cancelled.body.request]
        await asyncio.sleep(0)
        assert [p.alike[0].keys for p in line.sent] == [((2,),)]
        line.together.deliver(ReadManyReply(line.sent[0].request, error=SqlError(1105, "HY000", "no")))
        assert waiting.future.result().error.message == "no"
        assert not line.together.deliver(ReadManyReply(line.sent[0].request))  # a second answer

    at_once(test)


def test_a_read_that_the_answer_omits_is_answered_alone() -> None:
    async def test(line: Line) -> None:
        question = line.ask(1)
        await asyncio.sleep(0)
        line.together.deliver(ReadManyReply(line.sent[0].request))
        assert not question.future.done()
        assert line.book.deliver(Rows(question.body.request, table((5, 0))))
        assert question.future.done()

    at_once(test)


def test_a_lost_worker_leaves_nothing_under_way() -> None:
    async def test(line: Line) -> None:
        for n in range(READ_PACKETS + 3):
            line.ask(n)
            await asyncio.sleep(0)
        before = line.sent[0].request
        line.together.clear()
        assert not line.together.deliver(ReadManyReply(before))
        assert len(line.book.patient()) == READ_PACKETS + 3  # to be sent to the next worker
        line.ask("again")
        await asyncio.sleep(0)
        assert line.sent[-1].alike[0].keys == (("again",),)

    at_once(test)
