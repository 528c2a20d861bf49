"""Computes an answer in several ways at once and returns the first, for queries whose quickest way is unknown.

Answers error 1242 where a subquery that must have one row has several.  The data-flow has one error value for all
errors of an evaluation, and a read of it raises error 1690 (`plan/read_errors.py`).

Keeps true: an error in a row that the SELECT drops is not the SELECT's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial, wraps
from typing import Any, TypeVar, cast

from noria.core.errors import SqlError
from noria.plan.mir import Mir
from noria.plan.read_errors import has_single_values, is_evaluation_error, of_read
from noria.server.outcomes import ResultSet
from noria.sql.commands import Select, in_one_plan

Run = TypeVar("Run", bound=Callable[..., Any])


async def first_answer(*ways: Coroutine[Any, Any, ResultSet]) -> ResultSet:
    """Return the first answer and cancel the other ways.  If all fail, raise the error of the first argument."""
    tasks = [asyncio.ensure_future(w) for w in ways]
    left = set(tasks)
    try:
        while left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for t in done:
                if not t.cancelled() and t.exception() is None:
                    return t.result()
        return tasks[0].result()
    finally:
        for t in left:
            t.cancel()
        if left:
            await asyncio.wait(left)


def checks_single_values(run: Run) -> Run:
    """Decorate a method that answers a SELECT, its first argument, at once or later."""
    @wraps(run)
    def answered(self: Any, select: Any, *arguments: Any, **named: Any) -> Any:
        if select.view is None or not has_single_values(select.view.plan):
            return run(self, select, *arguments, **named)
        try:
            found = run(self, select, *arguments, **named)
        except SqlError as error:
            raise of_read(select.view.plan, error) from None
        return Unbegun(found, partial(_later, select.view.plan)) if isinstance(found, Awaitable) else found

    return cast(Run, answered)


def evaluates_in_order(run: Run) -> Run:
    """Decorate a method that answers a bound SELECT, its first argument, by a lookup; its last is `set_state`.

    A view has columns of rows that a condition with a parameter drops after the lookup.  If one of its values is an
    evaluation error, the SELECT is answered again in one plan, in which the condition comes first."""
    @wraps(run)
    def answered(self: Any, select: Select, *arguments: Any) -> Any:
        if select.view is None or select.view.after is None:
            return run(self, select, *arguments)
        again = partial(self.select_bound, set_state=arguments[-1])
        try:
            found = run(self, select, *arguments)
        except SqlError as error:
            if not is_evaluation_error(error):
                raise
            return again(in_one_plan(select))
        return Unbegun(found, partial(_or_in_one_plan, select, again)) if isinstance(found, Awaitable) else found

    return cast(Run, answered)


class Unbegun:
    """An answer that `made` makes of another one when it is awaited.  `close` drops both, if nobody awaits it."""

    def __init__(self, answer: Awaitable[Any], made: Callable[[Awaitable[Any]], Coroutine[Any, Any, Any]]):
        self._answer, self._made = answer, made

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._made(self._answer).__await__()

    def close(self) -> None:
        if isinstance(self._answer, Coroutine | Unbegun):
            self._answer.close()


async def _or_in_one_plan(select: Select, again: Callable[[Select], Awaitable[ResultSet]],
                          answer: Awaitable[ResultSet]) -> ResultSet:
    try:
        return await answer
    except SqlError as error:
        if not is_evaluation_error(error):
            raise
    return await again(in_one_plan(select))


async def _later(plan: Mir, answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except SqlError as error:
        raise of_read(plan, error) from None
