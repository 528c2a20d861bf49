"""Views in the making that will replace others.

Keeps true: a worker has them under temporary names that no text can use, and no catalog or recipe has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace

from noria.control.views.first_states import FirstStates
from noria.dataflow.messages import packets
from noria.plan.view import ViewDef


class ShadowViews:
    """The views by temporary name, each with its final one."""

    def __init__(self, first_states: FirstStates):
        self._first_states = first_states
        self.views: dict[str, ViewDef] = {}
        self._fewer = asyncio.Event()  # set, and replaced by another, whenever such a view is gone

    def fewer(self) -> Awaitable[object]:
        """Wait until the next of them is gone."""
        return self._fewer.wait()

    def forget(self, names: Iterable[str]) -> None:
        """Forget views that have replaced others or were given up."""
        for name in names:
            self.views.pop(name, None)
        self._fewer.set()
        self._fewer = asyncio.Event()

    def rename_table(self, table: str, name: str) -> None:
        """Rename a table in all plans."""
        self.views = {known: view.with_table(table, name) for known, view in self.views.items()}

    async def fill(self, reply: packets.Migrated) -> None:
        """Wait for the first states of those that a change has made."""
        waiting = dict.fromkeys([*reply.filling, *(name for name, _, _ in reply.bootstrap)])
        fills = [asyncio.ensure_future(self._first_states.fill(
            replace(self.views[name], name=name), [(node, plan) for v, node, plan in reply.bootstrap if v == name]))
            for name in waiting]
        try:
            await asyncio.gather(*fills)
        finally:
            for f in fills:
                f.cancel()
