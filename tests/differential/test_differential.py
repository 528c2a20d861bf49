"""Random cases on Noria and MariaDB: the same results, types and errors after every write.

    make fuzz                                  thousands of cases; prints its seed and what was refused
    NORIA_FUZZ_CASES=500 NORIA_FUZZ_SEED=7 pytest -s tests/differential        another run
    NORIA_WORKERS=3                            all with three workers; else each case draws one, two or three

A failure is shrunk and printed as statements; one that was mended becomes a case of `tests/logic/cases`.  Noria is
the embedded runtime behind a MySQL listener: what it does not maintain is refused, and counted.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import pytest

import workers
from differential.generate import Generator
from differential.play import Difference, Tally, comparable, ordered, play
from differential.shrink import shrink
from e2e.mariadb import INSTALLED

CASES = int(os.environ.get("NORIA_FUZZ_CASES", "25"))
FAILURES = int(os.environ.get("NORIA_FUZZ_FAILURES", "1"))  # so many are shrunk before the run ends
needs_mariadb = pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")


@pytest.mark.mariadb
@pytest.mark.timeout(7200)
@needs_mariadb
def test_noria_answers_as_mariadb_does(mariadb: Any) -> None:
    given = os.environ.get("NORIA_FUZZ_SEED", "100")
    first = random.randrange(10**6) * 1000 if given == "random" else int(given)
    print(f"NORIA_FUZZ_SEED={first}, {CASES} cases")
    tally, failures = Tally(), []
    for seed in range(first, first + CASES):
        case = Generator(seed).case()
        with workers.by_default(workers.drawn(str(seed))):
            found = play(case, mariadb, tally)
            if found is not None:
                failures.append(_told(seed, case, found, mariadb))
                print(failures[-1], flush=True)
        if len(failures) >= FAILURES:
            break
    print(tally)
    assert not failures, "\n\n".join(failures)


def _told(seed: int, case: Sequence[str], found: Difference, oracle: Any) -> str:
    def fails(candidate: Sequence[str]) -> bool:
        other = play(candidate, oracle)
        return other is not None and other.what == found.what

    small = shrink(case, fails)
    last = play(small, oracle)
    again = f"NORIA_WORKERS={workers.drawn(str(seed))} NORIA_FUZZ_SEED={seed} NORIA_FUZZ_CASES=1"
    return f"{again}; shrunk:\n" + ";\n".join(small) + f";\n{last}"


# ---------------------------------------------------------------- the tester itself
def test_a_case_is_shrunk_to_what_makes_it_fail() -> None:
    case = ["CREATE TABLE t (k INT, c INT)", "INSERT INTO t VALUES (1, 2), (3, 4), (5, 6)", "DELETE FROM t WHERE c = 9",
            "SELECT k, c + 1 FROM t WHERE k > 3 AND c < 7 ORDER BY k LIMIT 2"]
    small = shrink(case, lambda c: any("CREATE TABLE" in s for s in c) and any("4)" in s for s in c)
                   and any("c <" in s for s in c))
    assert small == ["CREATE TABLE t (c INT)", "INSERT INTO t VALUES (4)", "SELECT c FROM t WHERE c < 7"]


def test_order_counts_where_the_query_asks_for_it() -> None:
    rows = [(1, "A"), (2, "b")]
    assert ordered("SELECT a FROM t ORDER BY a") and not ordered("SELECT a FROM (SELECT b FROM t ORDER BY b LIMIT 1) q")
    assert comparable(rows, "SELECT") == comparable(rows[::-1], "SELECT")
    assert comparable(rows, "ORDER BY") != comparable(rows[::-1], "ORDER BY")
    assert comparable([("a",)], "SELECT DISTINCT") == comparable([("A",)], "SELECT DISTINCT")
    assert comparable([("a",)], "SELECT") != comparable([("A",)], "SELECT")
    assert comparable([(1,)], "SELECT") != comparable([(1.0,)], "SELECT")
