"""A signal ends a command wherever it lands, once."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from noria.cli.interrupts import Interrupted, interruptible

STOPS = [signal.SIGINT, signal.SIGTERM]


class Finaliser:
    """Python swallows what is raised while this goes."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_is_raised(number: signal.Signals) -> None:
    with pytest.raises(Interrupted) as caught, interruptible():
        signal.raise_signal(number)
    assert caught.value.number == number


@pytest.mark.parametrize("number", STOPS)
def test_one_that_python_swallows_is_raised_again(number: signal.Signals) -> None:
    passed = False
    with pytest.raises(Interrupted) as caught, interruptible():
        Finaliser(number)
        passed = True
        threading.Event().wait(30)
    assert caught.value.number == number and passed


@pytest.mark.parametrize("number", STOPS)
def test_one_in_a_callback_of_an_event_loop_ends_the_loop(number: signal.Signals) -> None:
    cleaned = False

    async def forever() -> None:
        nonlocal cleaned
        asyncio.get_running_loop().call_soon(signal.raise_signal, number)
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            cleaned = True

    with pytest.raises(Interrupted) as caught, interruptible():
        asyncio.run(forever())
    assert caught.value.number == number and cleaned


@pytest.mark.parametrize("number", STOPS)
def test_one_in_a_task_beside_ends_the_loop(number: signal.Signals) -> None:
    async def beside() -> None:
        signal.raise_signal(number)

    async def forever() -> None:
        await asyncio.gather(beside(), asyncio.sleep(30))

    with pytest.raises(Interrupted) as caught, interruptible():
        asyncio.run(forever())
    assert caught.value.number == number


def test_a_second_one_does_not_cut_cleaning_up_short() -> None:
    cleaned = False
    with pytest.raises(Interrupted), interruptible():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            cleaned = True
    assert cleaned


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(s) for s in (*STOPS, signal.SIGALRM)]
    with interruptible():
        pass
    assert [signal.getsignal(s) for s in (*STOPS, signal.SIGALRM)] == before
