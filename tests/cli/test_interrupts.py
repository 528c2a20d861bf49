"""A signal ends a command wherever it lands, once."""

from __future__ import annotations

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
