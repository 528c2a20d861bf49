"""STDDEV, VARIANCE and the aggregates of bits, beside MariaDB: over integers, decimals and doubles, with values that
are large beside their differences, of groups that lose their rows again."""

from __future__ import annotations

import random
from fractions import Fraction
from math import sqrt
from pathlib import Path

import pytest

from e2e.aggregates.beside import asked, beside, changes
from e2e.mariadb import MariaDb, needs_mariadb

pytestmark = needs_mariadb
SPREADS = ", ".join(f"0e0 + {name}({{0}})" for name in (  # added to a double, because MariaDB prints only some digits
    "STD", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "VARIANCE", "VAR_POP", "VAR_SAMP"))
QUERIES = (
    *(f"SELECT g, COUNT(*), {SPREADS.format(c)} FROM t GROUP BY g" for c in ("i", "d", "f", "b")),
    f"SELECT {SPREADS.format('i')}, AVG(i) FROM t WHERE g = 2",
    f"SELECT {SPREADS.format('f')} FROM t",
    "SELECT g, 0e0 + STDDEV(i * 2) / 2, ROUND(0e0 + VAR_SAMP(d), 3) FROM t GROUP BY g HAVING VARIANCE(i) > 1",
    "SELECT g, COUNT(DISTINCT i), 0e0 + STDDEV(i), SUM(DISTINCT d) FROM t GROUP BY g",
    "SELECT g, BIT_OR(u), BIT_XOR(u), COUNT(*) FROM t GROUP BY g",
    "SELECT BIT_OR(u), BIT_XOR(u) FROM t WHERE g = 1",
    "SELECT g, BIT_AND(u) FROM t WHERE u IS NOT NULL GROUP BY g",
    "SELECT BIT_XOR(u) FROM t",
    "SELECT BIT_AND(u) FROM t WHERE id = 3 OR id = 4 HAVING COUNT(u) > 0",
    "SELECT 0e0 + STDDEV(i), BIT_OR(u) FROM t WHERE g IN (1, 3)",
    "SELECT g, 0e0 + VAR_SAMP(f) FROM t WHERE id IN (1, 2, 3, 4, 5) GROUP BY g",
    "SELECT COUNT(*), 0e0 + STDDEV(d) FROM t WHERE g = 1 HAVING COUNT(*) > 1",
)


@pytest.mark.parametrize("workers", [1, 3])
def test_groups_that_change(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    with beside(maria, tmp_path, workers) as both:
        for text in changes(random.Random(workers), 25):
            both.write(text)
            for query in QUERIES:
                both.check(query)


@pytest.mark.parametrize("workers", [1, 3])
def test_noise_on_large_numbers(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    """The variance of a table equals that of exact arithmetic to the last digits.  MariaDB's recurrence loses some."""
    chance = random.Random(3)
    with beside(maria, tmp_path, workers) as both:
        rows: dict[int, tuple[float, int]] = {}
        query = "SELECT VAR_POP(f), VAR_POP(b), VAR_SAMP(f) FROM t"
        both.same_ways(query)
        for _ in range(30):
            at = chance.randrange(12)
            rows[at] = f, b = 1e9 + chance.gauss(0, 1e-3), 10**18 + chance.randrange(100)
            both.write(f"REPLACE INTO t (id, f, b) VALUES ({at}, {f!r}, {b})")
            if len(rows) > 9:
                gone, _ = rows.popitem()
                both.write(f"DELETE FROM t WHERE id = {gone}")
            wanted = [exact([Fraction(x) for x in column]) for column in zip(*rows.values(), strict=True)]
            sample = None if len(rows) == 1 else pytest.approx(wanted[0] * len(rows) / (len(rows) - 1), rel=1e-14)
            assert both.same_ways(query) == [(*(pytest.approx(w, rel=1e-14) for w in wanted), sample)]


def exact(values: list[Fraction]) -> float:
    mean = sum(values) / len(values)
    return float(sum((x - mean) ** 2 for x in values) / len(values))


def test_no_rounding_is_left(maria: MariaDb, tmp_path: Path) -> None:
    """Values of very different sizes enter a group and leave it: what remains is as if they had never been there."""
    with beside(maria, tmp_path, 1) as both:
        both.write("INSERT INTO t (id, g, f, b) VALUES (1, 1, 1e9 + 1e-3, 1000000000000000001), "
                   "(2, 1, 1e9 + 2e-3, 1000000000000000002), (3, 1, 1e9 + 4e-3, 1000000000000000004)")
        query = "SELECT STDDEV(f), VARIANCE(b), VAR_SAMP(b) FROM t WHERE g = 1"
        (before,) = both.same_ways(query)
        assert before[1:] == (14 / 9, 7 / 3)
        assert before[0] == pytest.approx(1e-3 * sqrt(14 / 9), rel=1e-4)  # of doubles that are near these
        for n in range(40):
            both.write(f"INSERT INTO t (id, g, f, b) VALUES (9, 1, 1e{n}, {7 ** (n % 20)}), (8, 1, -3.7e-{n}, -1)")
            both.same_ways(query)
            both.write("DELETE FROM t WHERE id IN (8, 9)")
            assert both.same_ways(query) == [pytest.approx(before, rel=1e-12)]
        both.write("DELETE FROM t WHERE id > 1")
        assert both.same_ways(query) == [(0.0, 0.0, None)]


def test_what_no_bigint_holds(maria: MariaDb, tmp_path: Path) -> None:
    """BIT_AND of nothing is 2**64 - 1, and so is BIT_OR of -1: error 1690 for these groups alone."""
    with beside(maria, tmp_path, 1) as both:
        both.write("INSERT INTO t (id, g, i) VALUES (1, 1, NULL), (2, 2, 6), (3, 2, 3), (4, 3, -1), (5, 3, 1)")
        assert both.same_ways("SELECT BIT_AND(i) FROM t WHERE g = 2 GROUP BY g") == [(2,)]
        assert both.same_ways("SELECT BIT_AND(i) FROM t WHERE g = 1 GROUP BY g") == 1690
        assert both.same_ways("SELECT BIT_OR(i), BIT_XOR(i) FROM t WHERE g = 1 GROUP BY g") == [(0, 0)]
        assert both.same_ways("SELECT BIT_OR(i) FROM t WHERE g = 3 GROUP BY g") == 1690
        assert both.same_ways("SELECT BIT_AND(i) FROM t WHERE g = 3 GROUP BY g") == [(1,)]
        for text in ("STDDEV(DISTINCT i)", "BIT_OR(DISTINCT i)"):
            assert asked(both.ours, f"SELECT {text} FROM t") == asked(both.theirs, f"SELECT {text} FROM t") == 1064
