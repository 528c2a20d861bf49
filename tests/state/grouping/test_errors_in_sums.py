"""A value whose evaluation failed makes SUM and AVG fail until it is removed."""

from __future__ import annotations

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.core.limits import ERROR_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.values import encode_double
from noria.state.grouping import group_kernels as gk
from noria.state.grouping.groups import Groups, Spec


@pytest.mark.parametrize("kind", [gk.SUM, gk.AVG, gk.FSUM, gk.FAVG])
def test_an_error_is_added_and_removed(kind: int) -> None:
    value = encode_double(2.5) if kind in (gk.FSUM, gk.FAVG) else 25
    groups = Groups((0,), (False,), [Spec(kind, 1, 1)], PlainSymbols(), full=True)
    groups.apply(Batch.from_rows([(1, value), (1, ERROR_CODE)], 2))
    assert groups.rows().rows() == [(1, ERROR_CODE)]
    out, dirty = groups.apply(Batch.from_rows([(1, ERROR_CODE)], 2, [-1]))
    assert sorted(zip(out.rows(), out.weights.tolist(), strict=True)) == [((1, ERROR_CODE), -1), ((1, value), 1)]
    assert dirty is None and np.array_equal(groups.rows().columns, [[1], [value]])


@pytest.mark.parametrize("kind", [gk.FSUM, gk.FAVG])
@pytest.mark.parametrize("values", [(1e308, 1e308, 1.5), (-1.7e308, -1.7e308, 0.1), (1e308, 1e308, 1e308), (
    1.7e308, 1.7e308, 1e-300)])
def test_a_sum_out_of_range_is_in_range_again_without_the_rows_that_made_it_so(
        kind: int, values: tuple[float, ...]) -> None:
    codes = [encode_double(v) for v in values]
    groups = Groups((0,), (False,), [Spec(kind, 1)], PlainSymbols(), full=True)
    groups.apply(Batch.from_rows([(1, codes[2])], 2))
    before = groups.rows().rows()
    groups.apply(Batch.from_rows([(1, c) for c in codes[:2]], 2))
    assert groups.rows().rows() == [(1, ERROR_CODE)]
    groups.apply(Batch.from_rows([(1, codes[0])], 2, [-1]))
    groups.apply(Batch.from_rows([(1, codes[1])], 2, [-1]))
    assert groups.rows().rows() == before == [(1, codes[2])]


def test_a_sum_passes_out_of_range_on_its_way() -> None:
    """The order of rows does not matter."""
    groups = Groups((0,), (False,), [Spec(gk.FSUM, 1)], PlainSymbols(), full=True)
    for v in (1e308, 1e308, 2.0, -1e308, -1e308):
        groups.apply(Batch.from_rows([(1, encode_double(v))], 2))
    assert groups.rows().rows() == [(1, encode_double(2.0))]
