"""Computes an answer in several ways at once and returns the first, for queries whose quickest way is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from noria.server.outcomes import ResultSet


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
