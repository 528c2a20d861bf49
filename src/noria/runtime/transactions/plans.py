"""Plans of statements that may move rows between workers, or that add values which are UNIQUE among all workers.
Call `plan_statement`.

    INSERT    FindConflicts at the workers that may have such rows ──► PredictEffect at the first owner, with these rows
    UPDATE    PredictEffect at each worker that may have its rows
    both      CheckUnique at all workers, if the plan assigns such values

Keeps true: a plan is valid as long as its places in the queues, or its locks, are held.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from noria.core.errors import SqlError
from noria.core.statements import Move, StatementEffect
from noria.dataflow.messages.packets import CheckUnique, FindConflicts, PredictEffect
from noria.runtime.routing.write_routing import RoutedWrite

Planning = FindConflicts | PredictEffect | CheckUnique
AskAll = Callable[[Mapping[int, Planning]], Awaitable[Sequence[Any]]]  # by worker; SqlError if one answers with it


async def plan_statement(routed: RoutedWrite, workers: int, ask: AskAll) -> StatementEffect:
    """Plan a statement: its result, and a `Move` for each worker concerned."""
    parts = routed.parts
    if routed.split_insert is None:
        effects = await ask({w: PredictEffect(0, part, routed.spread) for w, part in parts.items()})
        effect: StatementEffect = _together(effects)
    else:
        first, statement = min(parts), routed.split_insert[0]
        others = range(workers) if routed.unique else parts
        rows = await conflicting_rows(routed, (w for w in others if w != first), ask)
        (effect,) = await ask({first: PredictEffect(0, statement, routed.spread, rows)})
    if routed.assigns:
        added = tuple(row for (move,) in effect.parts.values() for row in move.added)
        table, each = next(iter(parts.values())).table, effect.parts
        await ask({w: CheckUnique(0, table, each[w][0].removed if w in each else (), added)
                   for w in range(workers)} if added else {})
    return effect


async def conflicting_rows(routed: RoutedWrite, workers: Iterable[int], ask: AskAll) -> tuple[bytes, ...]:
    """The packed rows of these workers that conflict with rows of the INSERT.  Raises SqlError."""
    if routed.split_insert is None:
        return ()
    conflicts = await ask({w: FindConflicts(0, ((routed.split_insert[0], routed.spread),)) for w in workers})
    for (some,) in conflicts:
        if isinstance(some, SqlError):
            raise some
    return tuple(row for (some,) in conflicts for row in some)


def _together(effects: Sequence[StatementEffect]) -> StatementEffect:
    """Combine the plans of a statement's parts."""
    parts: dict[int, tuple[Move]] = {}
    for w, (move,) in (item for f in effects for item in f.parts.items()):
        (had,) = parts.get(w, (Move(move.table, (), ()),))
        parts[w] = (Move(move.table, had.removed + move.removed, had.added + move.added),)
    results = [f.result for f in effects]
    return StatementEffect(results[0]._replace(affected=sum(r.affected for r in results),
                                               matched=sum(r.matched for r in results)), parts)
