"""How many workers a database has that a test opens in its own process: 1, 2 or 3, drawn for each test by its name, so
that it is the same every time; NORIA_WORKERS=2 gives all of them two.

A fixture's database has what is drawn for the fixture's scope (a module's for all its tests).  A test for which that
cannot be says why: `@pytest.mark.one_worker("looks at the only worker's graph")`; in a function, `by_default`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MOST = 3
GIVEN = int(os.environ.get("NORIA_WORKERS", "0"))


def drawn(name: str) -> int:
    return GIVEN or 1 + zlib.crc32(name.encode()) % MOST


def of(node: Any) -> int:
    """Of a test, or of the module, class or session that a fixture belongs to."""
    return 1 if node.get_closest_marker("one_worker") else drawn(without_rooms(node.nodeid))


def without_rooms(nodeid: str) -> str:
    """The folders below the package's left out: a test that moves to another room of its package keeps its number."""
    path, separator, test = nodeid.partition("::")
    parts = path.split("/")
    return "/".join(parts[:2] + parts[2:][-1:]) + separator + test


@contextmanager
def by_default(workers: int) -> Iterator[None]:
    """Databases that are opened meanwhile have so many, where nobody says how many."""
    import noria.client
    from noria.client.embedded import EmbeddedTransport

    opens = (EmbeddedTransport.__init__, noria.client.open)
    before = [it.__defaults__ for it in opens]
    try:
        for it in opens:
            it.__defaults__ = (None, workers)
        yield
    finally:
        for it, defaults in zip(opens, before, strict=True):
            it.__defaults__ = defaults
