"""Who ended a worker: requests that did so twice are refused from then on, reads as well as writes.

Keeps true: a request is blamed only for a death during which the worker was at it (`pulse.Doing`); what is
remembered is bounded; a request is known by what it asks, so that sending it again does not help.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict
from dataclasses import fields, is_dataclass, replace
from typing import Any

from noria.core.errors import SqlError
from noria.core.limits import POISON_DEATHS, POISON_KEPT
from noria.dataflow.packets import AddView, Migrate, Write


class Blame:
    """Deaths by request."""

    def __init__(self) -> None:
        self._deaths: OrderedDict[bytes, int] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._deaths)

    def note(self, body: Any) -> int:
        """The worker ended while it was at this; how often that happened."""
        known = signature(body)
        deaths = self._deaths[known] = self._deaths.pop(known, 0) + 1
        while len(self._deaths) > POISON_KEPT:
            self._deaths.popitem(last=False)
        return deaths

    def refusal(self, body: Any) -> SqlError | None:
        """Why this is not even tried."""
        if not self._deaths:
            return None
        parts = [body] if not isinstance(body, Write) else [body, *(Write((s,)) for s in body.statements)]
        worst = max(self._deaths.get(signature(p), 0) for p in parts)
        return refused(worst) if worst >= POISON_DEATHS else None


def refused(deaths: int) -> SqlError:
    return SqlError(1105, "HY000", f"This statement is refused: the worker ended {deaths} times while it was at it; it "
                                   "may be sent again after a restart of the server")


def signature(body: Any) -> bytes:
    """The same for a request that asks the same: numbers of requests and names of ad-hoc views do not count."""
    return hashlib.blake2b(pickle.dumps(_plain(body), protocol=5), digest_size=16).digest()


def _plain(body: Any) -> Any:
    if isinstance(body, Migrate):
        return [_nameless(s) for s in body.steps if isinstance(s, AddView)] or body.steps
    if is_dataclass(body) and any(f.name == "request" for f in fields(body)):
        return replace(body, request=0)  # type: ignore[type-var]  # an instance, not a class
    return body


def _nameless(step: AddView) -> Any:
    return replace(step.view, name="") if step.view.adhoc else step.view
