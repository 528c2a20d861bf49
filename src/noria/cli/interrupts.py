"""Turns SIGINT and SIGTERM into an exception that ends a command and is never lost.

Python raises a signal handler's exception wherever the main thread is running.  In a finaliser or in a hook around a
fork, Python drops it with the message "Exception ignored in", and Ctrl-C seems not to work.  Here `sys.unraisablehook`
notices the loss and raises the exception again after AGAIN_S.  `Interrupted` is a KeyboardInterrupt because an event
loop catches all other exceptions of its callbacks and tasks.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 0.02


class Interrupted(KeyboardInterrupt):
    """A signal stops the command.  number: the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def interruptible() -> Iterator[None]:
    """Within this context, the first SIGINT or SIGTERM raises Interrupted in the main thread.

    Later ones are ignored, so that the cleanup is not cut short.  Call it from the main thread.
    """
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        if not received:
            received.append(number)
            raise Interrupted(number)

    def again(_: int, __: FrameType | None) -> None:
        raise Interrupted(received[0])

    def lost(what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, Interrupted):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            hook(what)

    hook = sys.unraisablehook
    sys.unraisablehook = lost
    kept = [(s, signal.signal(s, f)) for s, f in
            ((signal.SIGINT, interrupt), (signal.SIGTERM, interrupt), (signal.SIGALRM, again))]
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in kept:
            signal.signal(number, handler)
