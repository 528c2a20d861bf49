"""The exact arithmetic of SUM and AVG against Python's integers and fractions."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal, localcontext
from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from noria.core.batch import Batch
from noria.core.limits import ERROR_CODE, MAX_INT, MIN_INT
from noria.core.values import decode_double, encode_double
from noria.state.grouping import group_kernels as gk
from noria.state.grouping.groups import Groups, Spec
from noria.state.symbols.symbols import SymbolTable

codes = st.integers(MIN_INT, MAX_INT)
weights = st.integers(-1000, 1000)


def joined(lo: int, hi: int) -> int:
    return (int(hi) << 64) + (int(lo) & (2**64 - 1))


@given(st.lists(st.tuples(codes, weights), max_size=30))
def test_sums_in_two_limbs_are_exact(rows: list[tuple[int, int]]) -> None:
    lo, hi = 0, 0
    for v, w in rows:
        lo, hi = gk.add_product(lo, hi, v, w)
    total = sum(v * w for v, w in rows)
    assert joined(lo, hi) == total
    assert bool(gk.fits(lo, hi)) == (MIN_INT <= total <= MAX_INT)


@given(st.integers(-(2**90), 2**90), st.integers(1, 2**40), st.sampled_from([1, 10, 10**4]))
def test_averages_round_half_away_from_zero(total: int, n: int, factor: int) -> None:
    lo = total & (2**64 - 1)
    got = int(gk.average(lo - 2**64 if lo >= 2**63 else lo, total >> 64, n, factor))
    with localcontext() as c:
        c.prec = 80
        expected = int((Decimal(total) * factor / n).quantize(Decimal(1), ROUND_HALF_UP))
    assert got == (expected if abs(expected) <= MAX_INT else ERROR_CODE)


# Double-doubles carry 106 bits: values of one column rarely span more.
@given(st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 6)), min_size=1, max_size=50), st.randoms())
def test_sums_of_doubles_do_not_depend_on_order_and_retract_exactly(values: list[float], rng) -> None:
    def run(rows: list[tuple[float, int]]) -> float:
        specs = np.array([[gk.FSUM, 0, 1, 0]], np.int64)
        acc = np.zeros(6, np.int64)
        empty, ranks = np.empty(0, np.int64), np.empty((2, 0), np.int64)
        for v, w in rows:
            cols = np.array([[encode_double(v)]], np.int64)
            gk.accumulate(acc, 0, specs, cols, 0, w, empty, ranks)
        return decode_double(int(gk.result(acc, 0, specs, 0)))

    rows = [(v, 1) for v in values]
    first = run(rows)
    assert first == math.fsum(values)
    rng.shuffle(rows)
    assert run(rows) == first
    extra = [(v * 3.7, 1) for v in values]
    assert run(rows + extra + [(v, -1) for v, _ in extra]) == first


def test_a_sum_of_doubles_may_pass_through_no_values_within_a_delta() -> None:
    """1e10 remains when rows are added and removed beside it, in any order within a delta."""

    def code(x: float) -> int:
        return encode_double(x)

    rows = [(7, code(1e3), 1), (7, code(0.5), 1), (7, code(1e3), -1), (7, code(0.5), -1)]
    for order in permutations(rows):
        groups = Groups((0,), [False], [Spec(gk.FSUM, 1), Spec(gk.FAVG, 1)], SymbolTable(None), full=True)
        groups.apply(Batch.from_rows([(7, code(1e10))], 2))
        groups.apply(Batch.from_rows([r[:2] for r in order], 2, [r[2] for r in order]))
        assert groups.rows().rows() == [(7, code(1e10), code(1e10))], order
