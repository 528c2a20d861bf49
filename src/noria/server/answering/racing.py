"""Runs several ways to one answer, when it is unknown which is the quickest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from noria.server.outcomes import ResultSet


async def first_answer(*ways: Coroutine[Any, Any, ResultSet]) -> ResultSet:
    """The first answer; the other ways are cancelled.  If none succeeds, raises the error of the first way."""
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
