"""A request that ended a worker twice is refused; a request that was only in flight is not."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Inspect, Read
from noria.runtime.link.poison_requests import PoisonRequests, signature
from noria.runtime.transport.heartbeats import Computing, RequestUnderWay, doing_path
from noria.runtime.transport.shard_owner import Process
from runtime.fake_worker import insert
from runtime.processes import linked, run, within


def test_requests_are_identified_by_their_content() -> None:
    assert signature(Read(1, "v", [(1,)])) == signature(Read(2, "v", [(1,)]))
    assert signature(Read(1, "v", [(1,)])) != signature(Read(1, "v", [(2,)]))


def test_a_request_is_refused_after_its_second_death_and_the_record_is_bounded() -> None:
    blame = PoisonRequests()
    assert not blame and blame.refusal(Read(1, "v", [(1,)])) is None
    assert blame.note(Read(1, "v", [(1,)])) == 1 and blame.refusal(Read(9, "v", [(1,)])) is None
    assert blame.note(Read(2, "v", [(1,)])) == 2
    refusal = blame.refusal(Read(9, "v", [(1,)]))
    assert refusal is not None and refusal.code == 1105 and "2 times" in refusal.message
    assert blame.refusal(Read(9, "v", [(2,)])) is None
    assert blame.note(Read(1, "x", [(1,)])) == 1
    blame.answered(Read(2, "x", [(1,)]))
    assert blame.note(Read(1, "x", [(1,)])) == 1
    for i in range(2_000):
        blame.note(Read(1, "w", [(i,)]))
    assert len(blame._deaths) == 1_000


def test_blame_is_forgotten_after_a_while() -> None:
    now = 0.0
    blame = PoisonRequests(lambda: now)
    blame.note(Read(1, "v", [(1,)]))
    blame.note(Read(1, "v", [(1,)]))
    assert blame.refusal(Read(9, "v", [(1,)])) is not None
    now = 601.0
    assert blame.refusal(Read(9, "v", [(1,)])) is None and blame.note(Read(1, "v", [(1,)])) == 1


def test_a_question_that_ends_its_worker_twice_is_refused_and_others_are_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path, doing=doing_path(tmp_path / "run", 0)) as (link, nursery):
            poison = asyncio.create_task(link.ask(Inspect(0, "die"), retry=True))
            innocent = [asyncio.create_task(link.ask(Read(0, "v", [i]), retry=True)) for i in range(20)]
            with pytest.raises(SqlError, match="ended 2 times"):
                await within(poison)
            for task in innocent:
                assert (await within(task)).error is None
            assert len(nursery.children) == 3
            with pytest.raises(SqlError, match="refused"):
                await link.ask(Inspect(0, "die"), retry=True)
            assert len(nursery.children) == 3
            assert (await within(link.change(insert(1)))).results[0].last_insert_id == 1

    run(test)


def test_a_kill_blames_no_request_that_the_worker_did_not_execute(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path, doing=doing_path(tmp_path / "run", 0)) as (link, nursery):
            for _ in range(3):
                await within(link.up())
                os.kill(nursery.children[-1].pid, signal.SIGSTOP)  # it executes no request
                write = asyncio.create_task(link.change(insert(1)))
                await asyncio.sleep(0)
                nursery.children[-1].kill()
                assert (await within(write)).results[0].error is None
            assert not link.book.blame

    run(test)


def test_a_cancelled_question_is_cancelled_at_the_worker(tmp_path: Path) -> None:
    async def test() -> None:
        async with linked(tmp_path) as (link, nursery):
            while not link._heart._lines:  # the worker's second line comes after its first
                await asyncio.sleep(0)
            os.kill(nursery.children[0].pid, signal.SIGSTOP)
            question = asyncio.create_task(link.ask(Read(0, "v", [])))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            number = next(iter(link.book.questions))
            question.cancel()
            with pytest.raises(asyncio.CancelledError):
                await question
            os.kill(nursery.children[0].pid, signal.SIGCONT)
            cancelled = None
            while not cancelled:  # the fake worker reports the cancellation
                cancelled = (await within(link.ask(Inspect(0, "unwanted", str(number))))).value["unwanted"]

    run(test)


def test_the_number_of_the_current_request_outlives_the_worker(tmp_path: Path) -> None:
    path = doing_path(tmp_path, 0)
    assert RequestUnderWay.last(path) is None
    doing = RequestUnderWay(path)
    assert RequestUnderWay.last(path) == 0
    doing(2**40 + 7)
    assert RequestUnderWay.last(path) == 2**40 + 7


def test_a_computing_process_is_distinguished_from_a_stopped_one() -> None:
    pid = os.fork()
    if not pid:
        while True:
            pass
    try:
        process = Process.of(pid)
        now = 0.0
        watched = Computing(process, lambda: now)
        before = 0
        while before < 20:  # processor time comes in hundredths of a second
            before += watched.goes_on()
        now = 1_000.0
        assert not watched.goes_on()  # without any sign for so long
        watched.sign()
        os.kill(pid, signal.SIGSTOP)
        while watched.goes_on():
            pass
        assert not any(watched.goes_on() for _ in range(100))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
