"""Records who makes the current change of the program, and by which statement, for the program's history.

The origin is a context variable of the task that makes the change, because the code in between does not need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

from noria.core import limits
from noria.core.expressions.coerce import EPOCH
from noria.dataflow.messages.packets import ChangeOrigin

NOBODY = "the server"
_origin: ContextVar[tuple[str, str]] = ContextVar("origin", default=(NOBODY, ""))


@contextmanager
def made_by(who: str, text: str) -> Iterator[None]:
    """Within this context, changes are recorded as made by `who` with this text."""
    before = _origin.set((who, text[: limits.HISTORY_CHARACTERS]))
    try:
        yield
    finally:
        _origin.reset(before)


@contextmanager
def with_text(text: str) -> Iterator[None]:
    """Within this context, changes have another text and the same author."""
    with made_by(_origin.get()[0], text):
        yield


def current_origin() -> ChangeOrigin:
    """The history entry of a change that is made now."""
    now = datetime.now(UTC).replace(tzinfo=None)
    return ChangeOrigin((now - EPOCH) // timedelta(microseconds=1), *_origin.get())
