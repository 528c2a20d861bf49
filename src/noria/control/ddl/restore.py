"""Restores the views of a worker that started, one reply after the other.

Keeps true: a view without a first state because the disk is full is tried again for TRIES * AGAIN_S seconds, since
there may be space soon.  Only then is it left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from noria.control.catalog.names import fold
from noria.control.catalog.worker_view import add_view_step
from noria.core.errors.codes import DISK_FULL
from noria.dataflow.messages.packets import Migrate, Migrated
from noria.plan.view import ViewDef

TRIES, AGAIN_S = 30, 1.0  # on a full disk


class RecoveryLink(Protocol):
    """The method of a link that is needed here."""

    async def recover(self, body: Any) -> Any: ...


async def brought_back(link: RecoveryLink, views: Sequence[ViewDef], recipe: tuple[str, ...], again_s: float = AGAIN_S
                       ) -> AsyncIterator[Migrated]:
    """Yield each reply, with the views that are given up."""
    for tries in reversed(range(TRIES)):
        steps = tuple(map(add_view_step, views))
        reply: Migrated = await link.recover(Migrate(steps, recipe, durable=False, each=True))
        if reply.error is not None:
            raise reply.error
        full = {fold(name) for name, why in reply.failed if tries and why.code == DISK_FULL.number}
        yield replace(reply, failed=tuple(f for f in reply.failed if fold(f[0]) not in full))
        views = [v for v in views if fold(v.name) in full]
        if not views:
            return
        await asyncio.sleep(again_s)
