"""VARIANCE and the aggregates of bits in `Groups`: against exact fractions, while rows come and go in any order."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.values import decode_double, encode_double
from noria.state.grouping import group_kernels as gk
from noria.state.grouping import moment_kernels as mk
from noria.state.grouping.groups import Groups, Spec


def variance(values: list[Fraction]) -> float:
    n = len(values)
    return float(n * sum(v * v for v in values) - sum(values) ** 2) / (n * n)


def change(groups: Groups, values: list[int], weights: list[int]) -> int:
    """Add rows of group 0; refill it if it became dirty.  Returns 1 in that case."""
    columns = np.array([[0] * len(values), values], np.int64)
    _, dirty = groups.apply(Batch(columns, np.array(weights, np.int64)))
    return int(dirty is not None)


@pytest.mark.parametrize("doubles", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_rows_that_come_and_go(seed: int, doubles: bool) -> None:
    rng = random.Random(seed)
    groups = Groups((0,), (False,), [Spec(gk.FVAR if doubles else gk.VAR, 1, 1)], PlainSymbols(), full=True)
    kept: list[int] = []
    center = 10.0 ** rng.randrange(12)
    for _ in range(300):
        if kept and rng.random() < 0.48:
            code, weight = kept.pop(rng.randrange(len(kept))), -1
        else:
            x = center + rng.gauss(0, 1) / rng.choice([1, 1000])
            code, weight = encode_double(x) if doubles else round(x) * rng.choice([1, 1, 10**5]) + rng.randrange(3), 1
            kept += [code]
        if change(groups, [code], [weight]):
            rows = Batch(np.array([[0] * len(kept), kept], np.int64), np.ones(len(kept), np.int64))
            groups = Groups((0,), (False,), groups.specs, PlainSymbols(), full=True)
            groups.apply(rows)
        if not kept:
            assert len(groups) == 0
            continue
        exact = [Fraction(decode_double(c)) if doubles else Fraction(c) for c in kept]
        assert decode_double(int(groups.rows().columns[1, 0])) == pytest.approx(variance(exact), rel=1e-14)


def test_a_far_larger_double_makes_its_group_dirty_when_it_goes() -> None:
    groups = Groups((0,), (False,), [Spec(gk.FVAR, 1, 1)], PlainSymbols(), full=True)
    small, large = [encode_double(x) for x in (1.0, 2.0, 4.0)], encode_double(1e40)
    assert change(groups, [*small, large], [1, 1, 1, 1]) == 0
    assert change(groups, [small[0]], [-1]) == 0
    assert change(groups, [large], [-1]) == 1


def test_weights_count_and_huge_doubles_are_errors() -> None:
    groups = Groups((0,), (False,), [Spec(gk.FVAR, 1, 1)], PlainSymbols(), full=True)
    change(groups, [encode_double(0.1), encode_double(0.4)], [3, 5])
    wanted = variance([Fraction(0.1)] * 3 + [Fraction(0.4)] * 5)
    assert decode_double(int(groups.rows().columns[1, 0])) == pytest.approx(wanted, rel=1e-15)
    change(groups, [encode_double(1e200), NULL_CODE], [1, 1])
    assert groups.rows().columns[1, 0] == ERROR_CODE
    change(groups, [encode_double(1e200)], [-1])
    assert decode_double(int(groups.rows().columns[1, 0])) == pytest.approx(wanted, rel=1e-15)
    change(groups, [encode_double(0.4)], [-5])
    assert decode_double(int(groups.rows().columns[1, 0])) == 0.0


def test_bits_count_the_values_that_have_them() -> None:
    specs = [Spec(gk.BITS, 1, f) for f in (mk.AND, mk.OR, mk.XOR)]
    groups = Groups((), (), specs, PlainSymbols(), full=True)
    groups.start()

    def shown() -> list[int]:
        return groups.rows().columns[:, 0].tolist()

    assert shown() == [ERROR_CODE, 0, 0]
    groups.apply(Batch(np.array([[0, 0, 0], [6, 3, NULL_CODE]], np.int64), np.array([2, 1, 4], np.int64)))
    assert shown() == [2, 7, 3]
    groups.apply(Batch(np.array([[0], [-1]], np.int64), np.array([1], np.int64)))
    assert shown() == [2, ERROR_CODE, ERROR_CODE]
    groups.apply(Batch(np.array([[0, 0], [-1, 6]], np.int64), np.array([-1, -2], np.int64)))
    assert shown() == [3, 3, 3]
