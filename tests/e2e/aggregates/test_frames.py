"""Window functions over frames and over groups, beside MariaDB, while rows change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from e2e.aggregates.beside import asked, beside, changes
from e2e.mariadb import MariaDb, needs_mariadb

pytestmark = needs_mariadb
FRAMES = ("ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING", "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
          "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING", "ROWS UNBOUNDED PRECEDING", "ROWS 2 PRECEDING",
          "ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING", "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
          "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
          "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING")
OVER_FRAMES = tuple(
    f"SELECT id, SUM(i) OVER w, COUNT(*) OVER w, COUNT(s) OVER w, AVG(d) OVER w, MIN(i) OVER w, MAX(f) OVER w, "
    f"SUM(f) OVER w FROM t WINDOW w AS (PARTITION BY g ORDER BY {order} {frame})"
    for frame in FRAMES for order in (["i"] if frame.startswith("RANGE") else ["i, id"]))
PICKS = tuple(
    f"SELECT id, FIRST_VALUE(i) OVER w, LAST_VALUE(i) OVER w, NTH_VALUE(i, 2) OVER w FROM t "
    f"WINDOW w AS (PARTITION BY g ORDER BY i, id {frame})" for frame in FRAMES)
RANKS = (
    "SELECT id, NTILE(3) OVER w, PERCENT_RANK() OVER w, CUME_DIST() OVER w, ROW_NUMBER() OVER w FROM t "
    "WINDOW w AS (PARTITION BY g ORDER BY i, id)",
    "SELECT id, PERCENT_RANK() OVER (ORDER BY g), CUME_DIST() OVER (PARTITION BY u ORDER BY g DESC) FROM t",
    "SELECT id, NTILE(5) OVER (ORDER BY id), NTILE(100) OVER (ORDER BY id DESC) FROM t WHERE g = 2",
)
OVER_GROUPS = (
    "SELECT g, COUNT(*), RANK() OVER (ORDER BY COUNT(*) DESC) FROM t GROUP BY g",
    "SELECT g, SUM(COUNT(*)) OVER (ORDER BY g), SUM(SUM(i)) OVER () FROM t GROUP BY g",
    "SELECT g, u, SUM(i), SUM(SUM(i)) OVER (PARTITION BY g ORDER BY u ROWS 1 PRECEDING) FROM t GROUP BY g, u",
    "SELECT g, AVG(MAX(i)) OVER (), 100 * COUNT(*) / SUM(COUNT(*)) OVER () FROM t GROUP BY g HAVING COUNT(*) > 1",
    "SELECT g, FIRST_VALUE(COUNT(*)) OVER (ORDER BY g), LAG(SUM(i)) OVER (ORDER BY g) FROM t GROUP BY g",
)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("queries", [OVER_FRAMES, PICKS, RANKS, OVER_GROUPS],
                         ids=["frames", "picks", "ranks", "groups"])
def test_windows(maria: MariaDb, tmp_path: Path, queries: tuple[str, ...], workers: int) -> None:
    with beside(maria, tmp_path, workers) as both:
        for text in changes(random.Random(20 + workers), 8):
            both.write(text)
            for query in queries:
                both.check(query)


@pytest.mark.parametrize("workers", [1, 3])
def test_what_lag_returns_beyond_the_group(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    """MariaDB has no such argument.  A NULL of a row stays NULL."""
    with beside(maria, tmp_path, workers) as both:
        both.write("INSERT INTO t (id, g, i, s) VALUES (1, 1, 5, 'a'), (2, 1, NULL, 'b'), (3, 1, 7, NULL), "
                   "(4, 2, 8, 'd')")
        query = "SELECT id, LAG(i, 1, -1) OVER w, LEAD(i, 2, id) OVER w, LAG(s, 2, 'none') OVER w FROM t " \
                "WINDOW w AS (PARTITION BY g ORDER BY id)"
        assert sorted(both.same_ways(query)) == [
            (1, -1, 7, "none"), (2, 5, 2, "none"), (3, None, 3, "a"), (4, -1, 4, "none")]
        both.write("DELETE FROM t WHERE id = 2")
        assert sorted(both.same_ways(query)) == [(1, -1, 1, "none"), (3, 5, 3, "none"), (4, -1, 4, "none")]


def test_frames_that_cannot_be(maria: MariaDb, tmp_path: Path) -> None:
    wrong = {"ROWS UNBOUNDED FOLLOWING": 3584, "ROWS BETWEEN CURRENT ROW AND UNBOUNDED PRECEDING": 3585,
             "ROWS BETWEEN CURRENT ROW AND 1 PRECEDING": 3586, "ROWS BETWEEN 1 FOLLOWING AND CURRENT ROW": 3586,
             "ROWS BETWEEN -1 PRECEDING AND CURRENT ROW": 3586,
             "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW": 1235}
    with beside(maria, tmp_path, 1) as both:
        for frame, code in wrong.items():
            assert asked(both.ours, f"SELECT SUM(i) OVER (ORDER BY id {frame}) FROM t") == code, frame
        for text, code in (("NTILE(0) OVER (ORDER BY id)", 1210), ("NTH_VALUE(i, 0) OVER (ORDER BY id)", 1210),
                           ("STDDEV(i) OVER (ORDER BY id)", 1235), ("SUM(DISTINCT i) OVER ()", 1235),
                           ("SUM(COUNT(*))", 1111)):
            assert asked(both.ours, f"SELECT {text} FROM t") == code, text
