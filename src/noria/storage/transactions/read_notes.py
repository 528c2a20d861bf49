"""What a SERIALIZABLE transaction has read at this worker, and whether it still holds at its commit.

    a SELECT       the front end knows its rows' conditions, and sends them with the commit; their moment is a mark
    a write        this worker notes its WHERE, and the keys that it looked up and did not lock
    the commit     no row that others have committed since then meets a condition or has a key; else error 1213

Keeps true: if the check finds nothing, the transaction would read the same rows if all of it ran now.  So the order of
commits is a serial order.  Too many notes become coarser ones, never none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError
from noria.core.errors.codes import LOCK_DEADLOCK
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr
from noria.core.limits import NULL_CODE, READ_CONDITIONS, READ_KEYS
from noria.core.statements import TableRead
from noria.core.symbols import Symbols
from noria.storage.tables.table import Changed
from noria.storage.transactions.history import History

Commits = list[tuple[float, Changed]]  # by position
Conditions = dict[Expr | None, int]  # of one table: the position from which on the condition must hold
KeysOf = Callable[[str, str, list[bytes], Codes], list[bytes]]  # table, family, keys, rows: their keys in the family


@dataclass
class ReadNotes:
    """The notes of one transaction.  marks: positions in the history.  keys: by table and family, with positions."""

    marks: list[int] = field(default_factory=list)
    conditions: dict[str, Conditions] = field(default_factory=dict)
    keys: dict[str, dict[tuple[str, bytes], int]] = field(default_factory=dict)

    def read(self, table: str, where: Expr | None, position: int) -> None:
        """Note that the rows of a condition were read; None: all rows."""
        note(self.conditions.setdefault(table, {}), where, position)
        if sum(map(len, self.conditions.values())) > READ_CONDITIONS:
            self.conditions[table] = {None: min(self.conditions[table].values())}

    def looked_up(self, table: str, keys: Iterable[tuple[str, bytes]], position: int) -> None:
        """Note keys of the table's families: whether rows have them was read."""
        for key in keys:
            self.keys.setdefault(table, {}).setdefault(key, position)
        if table in self.keys and sum(map(len, self.keys.values())) > READ_KEYS:
            self.read(table, None, min(self.keys.pop(table).values()))


def note(known: Conditions, where: Expr | None, position: int) -> None:
    """Add a condition.  An earlier position, and a condition that includes it, remain."""
    for wider in (where, None):
        if wider in known and known[wider] <= position:
            return
    known[where] = position


def conflict(notes: ReadNotes, reads: Sequence[TableRead], history: History, others: Mapping[str, Changed],
             keys_of: KeysOf, symbols: Symbols) -> str | None:
    """The table of which others have changed what was read; None if there is none.

    reads: those that the front end has noted.  others: what is to be committed before the transaction, by table.
    """
    conditions = {table: dict(some) for table, some in notes.conditions.items()}
    for read in reads:
        note(conditions.setdefault(read.table, {}), read.where, notes.marks[read.mark])
    for table in conditions.keys() | notes.keys.keys():
        some, keys = conditions.get(table, {}), notes.keys.get(table, {})
        later = history.later(min((*some.values(), *keys.values())), table)
        if later is None:
            return table
        commits: Commits = [*later, *([(inf, others[table])] if table in others else [])]
        if commits and (_meets(commits, some, symbols) or _has(table, commits, keys, keys_of)):
            return table
    return None


def _meets(commits: Commits, conditions: Conditions, symbols: Symbols) -> bool:
    """True if a changed row meets a condition, before its change or after."""
    sides = [(position, rows) for position, (_, removed, _, added) in commits for rows in (removed, added) if rows.size]
    if not sides or not conditions:
        return False
    positions = np.repeat([at for at, _ in sides], [rows.shape[1] for _, rows in sides])
    batch = Batch.of(np.concatenate([rows for _, rows in sides], axis=1))
    return any(bool(_maybe(where, batch, symbols)[positions > since].any()) for where, since in conditions.items())


def _maybe(where: Expr | None, batch: Batch, symbols: Symbols) -> npt.NDArray[np.bool_]:
    """The mask of rows for which the condition is true, or fails."""
    if where is None:
        return np.ones(len(batch), np.bool_)
    found = evaluate.compile(where)(batch, symbols)
    mask: npt.NDArray[np.bool_] = (found != 0) & (found != NULL_CODE)
    return mask


def _has(table: str, commits: Commits, keys: Mapping[tuple[str, bytes], int], keys_of: KeysOf) -> bool:
    """True if a changed row has one of the keys, before its change or after."""
    for family in {family for family, _ in keys}:
        for position, (removed_keys, removed, added_keys, added) in commits:
            for row_keys, rows in ((removed_keys, removed), (added_keys, added)):
                for key in keys_of(table, family, row_keys, rows) if row_keys else ():
                    if keys.get((family, key), inf) < position:
                        return True
    return False


def not_serializable(table: str) -> SqlError:
    """The error of a commit whose transaction has read what others have changed."""
    return SqlError(*LOCK_DEADLOCK, f"The transaction is SERIALIZABLE, and others have changed what it has read of "
                                    f"table '{table}': it is rolled back; try restarting transaction")


def lost_notes() -> SqlError:
    """The error of a transaction whose worker has forgotten what it has read."""
    return SqlError(*LOCK_DEADLOCK, "A worker was lost, and with it what the transaction had read: it is rolled back; "
                                    "try restarting transaction")
