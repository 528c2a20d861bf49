"""A value whose evaluation failed makes SUM and AVG fail while it is there, and no longer."""

from __future__ import annotations

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.core.limits import ERROR_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.values import encode_double
from noria.state import group_kernels as gk
from noria.state.groups import Groups, Spec


@pytest.mark.parametrize("kind", [gk.SUM, gk.AVG, gk.FSUM, gk.FAVG])
def test_an_error_comes_and_goes(kind: int) -> None:
    value = encode_double(2.5) if kind in (gk.FSUM, gk.FAVG) else 25
    groups = Groups((0,), (False,), [Spec(kind, 1, 1)], PlainSymbols(), full=True)
    groups.apply(Batch.from_rows([(1, value), (1, ERROR_CODE)], 2))
    assert groups.rows().rows() == [(1, ERROR_CODE)]
    out, dirty = groups.apply(Batch.from_rows([(1, ERROR_CODE)], 2, [-1]))
    assert sorted(zip(out.rows(), out.weights.tolist(), strict=True)) == [((1, ERROR_CODE), -1), ((1, value), 1)]
    assert dirty is None and np.array_equal(groups.rows().columns, [[1], [value]])
