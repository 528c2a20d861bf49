"""Which SELECTs are answered once and forgotten, and which become views: the one place that decides (section 4.4's
"only keys that were read are kept", for whole queries).

    asked for the first time      a one-shot: nothing is kept; over a large table, in slices
    asked again                   one-shots go on, while a view is made for it
    a one-shot read too much      a view at once; where that must hold too much, Spark answers
    a one-shot failed             one-shots, until one of them has an answer

Keeps true: what is remembered of a SELECT is a number and a count, of the last ASKED_SELECTS of them; nothing of it
outlives a change of the program, after which everything may cost something else.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from noria.control.catalog.published import columns_asked
from noria.core.limits import ASKED_SELECTS, ONE_SHOTS
from noria.plan.view import ViewDef


class Verdict(Enum):
    ONCE = "a one-shot"
    BOTH = "a one-shot, and a view for those who ask later"
    VIEW = "a view"


@dataclass(slots=True)
class _Asked:
    """times: how often; too_much: a one-shot would read too many rows; no_view: it must not be one; failed: the last
    one-shot was answered with an error."""

    times: int = 0
    too_much: bool = False
    no_view: bool = False
    failed: bool = False


class Policy:
    """one_shots: how often a SELECT is asked before a view is made for it; 0: a view is made at once."""

    def __init__(self, one_shots: int = ONE_SHOTS, most: int = ASKED_SELECTS):
        self._one_shots, self._most = one_shots, most
        self._asked: OrderedDict[int, _Asked] = OrderedDict()
        self._version = -1

    def asked(self, wanted: ViewDef, version: int) -> Verdict:
        """A SELECT that no view answers is asked, under this version of the program."""
        known = self._of(wanted, version)
        known.times += 1
        return self._verdict(known, known.times)

    def expected(self, wanted: ViewDef, version: int) -> Verdict:
        """What `asked` would say; it counts for nothing."""
        known = self._asked.get(_number(wanted)) if version == self._version else None
        return self._verdict(known or _Asked(), 1 if known is None else known.times + 1)

    def _verdict(self, known: _Asked, times: int) -> Verdict:
        if known.too_much or not self._one_shots:
            return Verdict.VIEW
        wanted = times > self._one_shots and not (known.no_view or known.failed)
        return Verdict.BOTH if wanted else Verdict.ONCE

    def too_much(self, wanted: ViewDef, version: int) -> None:
        """A one-shot of it gave up."""
        self._of(wanted, version).too_much = True

    def answered(self, wanted: ViewDef, version: int, failed: bool) -> None:
        """A one-shot of it had an answer, or failed."""
        self._of(wanted, version).failed = failed

    def no_view(self, wanted: ViewDef, version: int) -> None:
        """A view of it was refused."""
        self._of(wanted, version).no_view = True

    def _of(self, wanted: ViewDef, version: int) -> _Asked:
        if version != self._version:
            self._asked.clear()
            self._version = version
        number = _number(wanted)
        known = self._asked.setdefault(number, _Asked())
        self._asked.move_to_end(number)
        if len(self._asked) > self._most:
            self._asked.popitem(last=False)
        return known


def _number(wanted: ViewDef) -> int:
    """Two with one number: a view is made too soon."""
    return hash((wanted.plan, wanted.key, columns_asked(wanted)))
