"""Holds the memory limit: measures states, frees texts that no state holds, and evicts the least recently read keys.

Keeps true: the least recently read keys are evicted first. An internal key is a candidate only after the view keys
derived from it (design/decisions.md, 6). Full states are never evicted.

Call `hold_limit` between ticks. `evict_bytes` evicts without a limit, and `memory` measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.core.limits import ADHOC_SHARE, KEPT_BYTES
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.eviction import carried, evict, matching, pattern_of
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.nodes import Columns, KeyPattern, Node
from noria.state.memory.mapped import leaving

HEADROOM = 0.95  # eviction frees a little more than necessary, so that it does not run at every step
LEAST_PARTIAL = 0.1  # share of the limit that partial states may always keep
SAMPLE = 1024  # keys per index and round: the oldest of a sample is nearly the oldest of all


def memory(engine: Engine) -> int:
    """Bytes of the symbol table, states and views."""
    ranges = sum(r.memory() for n in engine.graph.nodes for r in n.ranges.values())
    return engine.symbols.memory() + ranges + _apart(engine) + sum(
        n.state.memory() for n in engine.graph.nodes if n.state is not None)


def _apart(engine: Engine) -> int:
    """Bytes outside nodes: states that are built beside a node's state, and rows that one-shots hold."""
    states = sum(state.memory() for _, state in engine.builds.unpublished_states())
    return states + sum(scan.memory() for scan in engine.scans)


def essential(engine: Engine) -> int:
    """Bytes of full states and of states outside nodes. They are never evicted: no upquery could restore single
    keys."""
    return _apart(engine) + sum(n.state.memory() for n in engine.graph.nodes if n.state is not None and n.full)


def excess_of_adhoc(engine: Engine, limit: int) -> tuple[int, dict[str, int]]:
    """By how many bytes full states that only ad-hoc views need exceed their share, and the bytes of each such view.

    Their share is the part of the limit (0: no limit) that all other states leave free, and at least ADHOC_SHARE of it.
    """
    fixed = essential(engine) + engine.symbols.memory()
    if not limit or fixed <= limit:
        return 0, {}
    named = {n for r in engine.readers.values() if not r.op.adhoc for n in ancestors(r)}
    adhoc, of = set[Node](), dict[str, int]()
    for name, reader in engine.readers.items():
        if reader.op.adhoc:
            own = {n for n in ancestors(reader) if n.full and n.state is not None and n not in named}
            of[name] = _bytes(own)
            adhoc |= own
    adhoc_bytes = _bytes(adhoc)
    room = max(int(ADHOC_SHARE * limit), limit - (fixed - adhoc_bytes))
    return max(adhoc_bytes - room, 0), {name: nbytes for name, nbytes in of.items() if nbytes}


def _bytes(nodes: Iterable[Node]) -> int:
    return sum(n.state.memory() for n in nodes if n.state is not None)


def evictable(engine: Engine) -> list[tuple[Node, Columns]]:
    return [(n, cols) for n in engine.graph.nodes if n.op.stateful and not n.full and n.state is not None
            for cols in n.indexes]


def hold_limit(engine: Engine, limit: int) -> None:
    """Free texts that no state holds, and evict least recently read keys while memory exceeds the limit (bytes;
    0: none).

    Partial states keep a share of the limit even if full states and texts use all of it: otherwise every read
    would miss. While requests among workers lose the same keys repeatedly, the goal is KEPT_BYTES higher.
    """
    waits = engine.texts_reserved or (engine.saved is not None and engine.saved.waits)
    if engine.symbols.sweep_is_due() and not waits:
        sweep(engine)
    if not limit:
        return
    stored, held = engine.store.memory(), memory(engine)
    if stored + held + leaving.nbytes > limit:
        leaving.give_back()
    if stored + held <= limit:
        return
    fixed = essential(engine) + engine.symbols.memory()
    goal = max(int(HEADROOM * limit) - stored, fixed + int(LEAST_PARTIAL * limit))
    if engine.exchanges is not None and engine.exchanges.holding_for:
        goal += KEPT_BYTES
    if held > goal:
        engine.refill = None  # its keys would be evicted again
        evict_bytes(engine, held - goal)
        engine.shrink()
        leaving.give_back()


def evict_bytes(engine: Engine, nbytes: int) -> int:
    """Free nbytes by evicting least recently read keys. Returns the bytes freed, fewer if no partial key is left.

    First, in turns: internal keys that no view needs any more, then the coldest view keys. Needed internal keys
    follow when nothing else is left.
    """
    before = memory(engine)
    goal = before - nbytes
    for force in (False, True):
        progress = True
        while progress and memory(engine) > goal:
            progress = _round(engine, goal, force)
    return before - memory(engine)


def _round(engine: Engine, goal: int, force: bool) -> bool:
    """Evict once from internal states, then once from views. Returns whether any key was evicted."""
    progress = False
    for leaf in (False, True):
        for n, cols in evictable(engine):
            over = memory(engine) - goal
            if bool(n.children) == leaf or over <= 0:
                continue
            keys, stamps, sizes = n.stored.coldest(cols, SAMPLE)
            most = (keys.shape[1] + 1) // 2  # the colder half of the sample
            if n.children and not force:
                free = ~_needed(engine, n, cols, keys)
                keys, stamps, sizes = np.ascontiguousarray(keys[:, free]), stamps[free], sizes[free]
                most = keys.shape[1]  # no present key needs these
            order = np.argsort(stamps, kind="stable")[:most]
            chosen = order[: int(np.searchsorted(np.cumsum(sizes[order]), over)) + 1]
            evict(engine, n, cols, np.ascontiguousarray(keys[:, chosen]))
            progress |= len(chosen) > 0
    return progress


def _needed(engine: Engine, node: Node, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
    """Which keys have present keys below that derive from them."""
    out = np.zeros(keys.shape[1], np.bool_)
    if not keys.shape[1]:
        return out
    for user in node.users_of(cols):
        below, index, _ = user
        for p in carried(engine, pattern_of(cols, keys), user):
            if all(c in p.cols for c in index):
                below_keys = np.ascontiguousarray(p.values[[p.cols.index(c) for c in index]])
                out[p.source[~below.stored.missing(index, below_keys)]] = True
                continue
            for i in range(p.values.shape[1]):  # a straddled key: searched among the present keys
                one = KeyPattern(p.cols, p.values[:, i:i + 1], p.source[i:i + 1])
                out[p.source[i]] |= matching(engine, below, index, one).shape[1] > 0
    return out


def sweep(engine: Engine) -> int:
    """Free the texts that no state holds. Returns the bytes freed. Call it between ticks only."""
    engine.saved = engine.refill = None  # the texts of unrestored states are not held
    return engine.symbols.sweep(held(engine))


def held(engine: Engine) -> Iterator[Codes]:
    """Every text id that a state, a delta kept back, a one-shot or a request to other workers holds; other
    numbers may be among them."""
    for n in engine.graph.nodes:
        if n.state is not None:
            yield from n.state.held([c for c, f in enumerate(n.fields) if f.type.is_text])
        for batch in n.stash or ():
            yield from batch.columns
    for n, state in engine.builds.unpublished_states():
        yield from state.held([c for c, f in enumerate(n.fields) if f.type.is_text])
    for batch in engine.builds.held():
        yield from batch.columns
    for scan in engine.scans:
        yield from scan.held()
    if engine.exchanges is not None:
        yield from engine.exchanges.held()
    yield from engine.held_by_transactions()
