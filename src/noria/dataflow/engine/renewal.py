"""Renews states whose input changed without a delta: by a bulk load, or because an operator raised in a tick.

Keeps true: partial states that derive from the changed rows drop all keys. Full states are built again, large ones in
slices. Only reads of their views wait. Rows that other workers received over exchanges are renewed as if this
worker had been lost (R19).

Call `reload` after a bulk load and `restart` after a tick in which operators raised.
"""

from __future__ import annotations

from noria.core.errors import InvariantViolation
from noria.dataflow.backfill.exchange_state import BackfillReceiver
from noria.dataflow.backfill.full_state import Promotion
from noria.dataflow.engine.runtime import EngineRuntime
from noria.dataflow.graph.graph import ancestors, local_ancestors
from noria.dataflow.graph.nodes import UNREADY, Node
from noria.dataflow.graph.protocols import StoreBroken

FATAL = (InvariantViolation, StoreBroken)


def reload(engine: EngineRuntime, table: str) -> None:
    """Renew all states that derive from the table: its rows changed on disk."""
    engine.saved = None
    _renew(engine, set(engine.bases.get(table, ())), at_once=True)
    if engine.exchanges is not None:
        engine.exchanges.report_load(table)


def restart(engine: EngineRuntime, raised: set[Node]) -> list[Node]:
    """Renew all states that derive from nodes that raised in a tick, whose output is lost.

    Returns the full nodes of this worker that are built again, in the background.
    """
    engine.builds.restart_derived(raised)
    again = _renew(engine, raised, at_once=False)
    if engine.exchanges is not None:
        engine.exchanges.report_broken(raised)
    return again


def retry_build(engine: EngineRuntime, node: Node) -> None:
    """Build a full state again whose build failed."""
    build = engine.builds.states[node]
    engine.builds.drop(node)
    if isinstance(build, Promotion | BackfillReceiver) and build.indexes is not None:
        engine.builds.build_beside(node, build.indexes)
    else:
        rebuild(engine, node, at_once=False)


def rebuild(engine: EngineRuntime, node: Node, at_once: bool, large: int | None = None) -> None:
    """Empty a full node and build its first state again.

    If an operator raises meanwhile, the node is built in the background, and the caller continues. `large`: as in
    `relayout`.
    """
    node.op.forget(engine, node)
    try:
        engine.first_state(node, False, large, at_once)
    except FATAL:
        raise
    except Exception as bug:
        engine.outages.failed(node, bug)
        node.op.forget(engine, node)
        engine.first_state(node, False, None, at_once=False)


def _renew(engine: EngineRuntime, changed: set[Node], at_once: bool) -> list[Node]:
    """Forget every partial state that derives from these nodes, and build every full one again. Returns the full
    ones."""
    above = ancestors if engine.exchanges is None else local_ancestors
    below = [n for n in engine.graph.nodes if n.op.stateful and changed & set(above(n))
             and n not in engine.builds.dormant]
    for n in below:
        if not n.full:
            engine.forget(n)
    again = [n for n in below if n.full and n.readiness not in UNREADY]
    for n in below:
        if n in again:
            rebuild(engine, n, at_once)
        elif not n.full and n.parents:
            n.inert = True  # until its inputs are complete, see `Backfills.update_readiness`
    engine.builds.update_readiness()
    return again
