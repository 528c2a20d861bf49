"""Orders of rows against Python's own sort."""

from __future__ import annotations

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.core.limits import ERROR_CODE, MAX_INT, MIN_INT, NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.ranking import in_order
from noria.core.types import Kind, SqlType

INT = SqlType(Kind.INT)
WIDE = [MIN_INT, MAX_INT, 0]
KINDS = {"few": [1, 2, 3], "far": [10**12, -(10**12), 5], "nulls": [NULL_CODE, 1, 2, -7], "errors": [
    NULL_CODE, ERROR_CODE, 3], "wide": WIDE, "wide, nulls": [NULL_CODE, *WIDE], "one": [4], "all null": [NULL_CODE]}


@pytest.mark.parametrize("rows", [0, 1, 2, 40, 999, 1000])
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("descending", [False, True])
def test_rows_are_in_order(rows: int, first: str, second: str, descending: bool) -> None:
    chance = np.random.default_rng(rows)
    columns = np.stack([chance.choice(np.array(v, np.int64), rows) for v in (
        KINDS["few"] if rows % 2 == 0 else [1], KINDS[first], KINDS[second], list(range(50)))])
    batch = Batch.of(columns)
    found = in_order(batch, [INT] * 4, columns[:1], ((1, descending), (2, False)), PlainSymbols())

    def key(row: tuple[int, ...]) -> tuple[int, ...]:
        return (row[0], -row[1] if descending else row[1], row[2], *row)

    wanted = sorted((tuple(r) for r in columns.T.tolist()), key=key)
    assert [tuple(r) for r in columns[:, found.at].T.tolist()] == wanted
    assert found.new_group.tolist() == [i == 0 or wanted[i - 1][0] != r[0] for i, r in enumerate(wanted)]
    assert found.new_peer.tolist() == [i == 0 or wanted[i - 1][:3] != r[:3] for i, r in enumerate(wanted)]
