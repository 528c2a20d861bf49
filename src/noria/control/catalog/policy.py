"""Decides which SELECTs are answered by a one-shot and which become views.  No other module decides this.

It applies section 4.4's "only keys that were read are kept" to whole queries.

    read for the first time       a one-shot: nothing is kept; over a large table, in slices
    read again                    one-shots continue while a view is made
    a one-shot read too much      a view at once; if that would hold too much, Spark answers
    a one-shot failed             one-shots, until one of them has an answer

Keeps true: each of the last REMEMBERED_SELECTS SELECTs is remembered as a number and a count.  A change of the
program clears them, because it may change every cost.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from noria.control.catalog.worker_view import columns_needed
from noria.core.limits import ONE_SHOTS, REMEMBERED_SELECTS
from noria.plan.view import ViewDef


class Verdict(Enum):
    ONCE = "a one-shot"
    BOTH = "a one-shot, and a view for those who ask later"
    VIEW = "a view"


@dataclass(slots=True)
class _SelectHistory:
    """What is known of a SELECT.

    times: how often it was read; too_much: a one-shot would read too many rows; no_view: a view for it was rejected;
    failed: the last one-shot returned an error.
    """

    times: int = 0
    too_much: bool = False
    no_view: bool = False
    failed: bool = False


class ViewPolicy:
    """one_shots: how often a SELECT is read before a view is made for it; 0: a view is made at once."""

    def __init__(self, one_shots: int = ONE_SHOTS, most: int = REMEMBERED_SELECTS):
        self._one_shots, self._most = one_shots, most
        self._histories: OrderedDict[int, _SelectHistory] = OrderedDict()
        self._version = -1

    def decide(self, wanted: ViewDef, version: int) -> Verdict:
        """Count a SELECT that no view answers, under this version of the program, and decide."""
        known = self._of(wanted, version)
        known.times += 1
        return self._verdict(known, known.times)

    def expected(self, wanted: ViewDef, version: int) -> Verdict:
        """What `decide` would return; counts nothing."""
        known = self._histories.get(_number(wanted)) if version == self._version else None
        return self._verdict(known or _SelectHistory(), 1 if known is None else known.times + 1)

    def _verdict(self, known: _SelectHistory, times: int) -> Verdict:
        if known.too_much or not self._one_shots:
            return Verdict.VIEW
        wanted = times > self._one_shots and not (known.no_view or known.failed)
        return Verdict.BOTH if wanted else Verdict.ONCE

    def too_much(self, wanted: ViewDef, version: int) -> None:
        """Record that a one-shot gave up because it read too much."""
        self._of(wanted, version).too_much = True

    def answered(self, wanted: ViewDef, version: int, failed: bool) -> None:
        """Record that a one-shot returned an answer, or failed."""
        self._of(wanted, version).failed = failed

    def no_view(self, wanted: ViewDef, version: int) -> None:
        """Record that a view for the SELECT was rejected."""
        self._of(wanted, version).no_view = True

    def _of(self, wanted: ViewDef, version: int) -> _SelectHistory:
        if version != self._version:
            self._histories.clear()
            self._version = version
        number = _number(wanted)
        known = self._histories.setdefault(number, _SelectHistory())
        self._histories.move_to_end(number)
        if len(self._histories) > self._most:
            self._histories.popitem(last=False)
        return known


def _number(wanted: ViewDef) -> int:
    """A hash of the SELECT.  If two have the same, a view is made too early."""
    return hash((wanted.plan, wanted.key, columns_needed(wanted)))
