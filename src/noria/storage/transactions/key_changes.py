"""Which keys of a table a transaction's statement has removed and added.

FOREIGN KEYs are checked by these: a child's added keys need a parent, and a parent's removed keys must have no child.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from noria.core.batch import Codes
from noria.core.limits import NULL_CODE
from noria.core.statements import KeyChange
from noria.core.symbols import Symbols
from noria.core.values import python_values, to_arrow
from noria.storage.statements.stage import TableStage
from noria.storage.tables.table import StoredTable

Key = tuple[Any, ...]


def key_changes(stage: TableStage, since: int, columns: Sequence[tuple[int, ...]], symbols: Symbols
                ) -> tuple[KeyChange, ...]:
    """For each set of columns the values that the effects from `since` on have removed and added, net.

    Also the values of all rows that they have removed, and the pairs of those that were changed in place.  Values
    with a NULL are left out.
    """
    removed_keys, removed, added_keys, added = stage.changed(stage.delta(since), since)
    at = {key: n for n, key in enumerate(added_keys)}
    stays = [(n, at[key]) for n, key in enumerate(removed_keys) if key in at]
    found = []
    for some in columns:
        before, after = _counted(removed, some), _counted(added, some)
        old_keys, new_keys = _tuples(removed, some), _tuples(added, some)
        moved = {(old_keys[n], new_keys[m]) for n, m in stays}
        for effect in stage.effects[since:]:
            if effect.old.shape == effect.new.shape:
                moved.update(zip(_tuples(effect.old, some), _tuples(effect.new, some), strict=True))
        pairs = [(old, new) for old, new in moved if old != new and NULL_CODE not in old]
        gone = dict.fromkeys(key for e in stage.effects[since:] for key in _tuples(e.old, some) if NULL_CODE not in key)
        net_removed, net_added = list((before - after).elements()), list((after - before).elements())
        found.append(KeyChange(_values(stage.table, some, net_removed, symbols),
                               _values(stage.table, some, net_added, symbols),
                               _values(stage.table, some, list(gone), symbols),
                               _values(stage.table, some, [old for old, _ in pairs], symbols),
                               _values(stage.table, some, [new for _, new in pairs], symbols)))
    return tuple(found)


def _tuples(codes: Codes, columns: tuple[int, ...]) -> list[Key]:
    return list(zip(*(codes[c].tolist() for c in columns), strict=True))


def _counted(codes: Codes, columns: tuple[int, ...]) -> Counter[Key]:
    return Counter(key for key in _tuples(codes, columns) if NULL_CODE not in key)


def _values(table: StoredTable, columns: tuple[int, ...], keys: Sequence[Key], symbols: Symbols) -> tuple[Key, ...]:
    if not keys:
        return ()
    codes = np.array(keys, np.int64).T
    return tuple(zip(*(python_values(to_arrow(codes[n], table.types[c], symbols)) for n, c in enumerate(columns)),
                     strict=True))
