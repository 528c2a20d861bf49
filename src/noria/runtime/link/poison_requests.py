"""Records which requests ended a worker. A request that did so POISON_DEATHS times is rejected, whether it reads or
writes. Call `PoisonRequests.note` and `refusal`.

Keeps true: a request is blamed only for a death during which the worker executed it (`heartbeats.RequestUnderWay`). The
record is bounded; an entry is removed after `limits.BLAME_S` or when the request is answered. A request is identified
by its content, so sending it again does not circumvent this.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from noria.core.errors import Poisoned, SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import BLAME_S, POISON_DEATHS, POISON_KEPT
from noria.dataflow.messages.packets import AddView, Migrate, Write
from noria.runtime.transport.packet_codec import PACKETS


class PoisonRequests:
    """Deaths by request, with the time of the last one. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._deaths: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._deaths)

    def note(self, body: Any) -> int:
        """Record that the worker ended during this request. Returns how often that has happened."""
        known = signature(body)
        deaths = self._count(known) + 1
        self._deaths.pop(known, None)
        self._deaths[known] = deaths, self._clock()
        while len(self._deaths) > POISON_KEPT:
            self._deaths.popitem(last=False)
        return deaths

    def _count(self, known: bytes) -> int:
        deaths, at = self._deaths.get(known, (0, 0.0))
        if deaths and self._clock() - at > BLAME_S:
            del self._deaths[known]
            return 0
        return deaths

    def answered(self, body: Any) -> None:
        """Clear the record of a request that was answered."""
        if self._deaths:
            self._deaths.pop(signature(body), None)

    def refusal(self, body: Any) -> SqlError | None:
        """The error with which the request is rejected without a try, or None."""
        if not self._deaths:
            return None
        parts = [body] if not isinstance(body, Write) else [body, *(Write((s,)) for s in body.statements)]
        worst = max(self._count(signature(p)) for p in parts)
        return poisoned_error(worst) if worst >= POISON_DEATHS else None


def poisoned_error(deaths: int) -> SqlError:
    return Poisoned(*UNKNOWN_ERROR,
                    f"This statement is refused: the worker ended {deaths} times while it was at it; it "
                    f"may be sent again {BLAME_S // 60} minutes after the last time")


def signature(body: Any) -> bytes:
    """A digest of the content of a request, without request numbers and names of ad-hoc views."""
    return hashlib.blake2b(PACKETS.encode(_plain(body)), digest_size=16).digest()


def _plain(body: Any) -> Any:
    if isinstance(body, Migrate):
        return [_nameless(s) for s in body.steps if isinstance(s, AddView)] or body.steps
    if is_dataclass(body) and not isinstance(body, type) and any(f.name == "request" for f in fields(body)):
        return replace(body, request=0)
    return body


def _nameless(step: AddView) -> Any:
    return replace(step.view, name="") if step.view.adhoc else step.view
