"""`noria verify` where little was read: it says what it compared, and derives keys so that it is something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.serving import Served, execute, rows
from noria.core.limits import VERIFY_KEYS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
KEYS, EACH = 300, 3


def test_keys_that_nobody_read_are_derived_and_compared(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    try:
        with served.connect() as connection:
            execute(connection, "CREATE TABLE t (id INT PRIMARY KEY, k INT, s VARCHAR(9) COLLATE utf8mb4_bin)")
            execute(connection, "CREATE TABLE nothing (id INT PRIMARY KEY, k INT)")
            values = ", ".join(f"({i}, {i % KEYS}, 's{i % 7}')" for i in range(KEYS * EACH))
            execute(connection, f"INSERT INTO t VALUES {values}")
            execute(connection, "CREATE VIEW of_k AS SELECT id, k, s FROM t WHERE k = ?")
            execute(connection, "CREATE VIEW of_both AS SELECT COUNT(*) AS n FROM t WHERE k = ? AND s = ?")
            execute(connection, "CREATE VIEW of_range AS SELECT id FROM t WHERE s = ? AND k > ?")
            execute(connection, "CREATE VIEW of_nothing AS SELECT id FROM nothing WHERE k = ?")
            execute(connection, "CREATE MATERIALIZED VIEW whole AS SELECT s, COUNT(*) AS n FROM t GROUP BY s")
            execute(connection, "CREATE VIEW unread AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
            assert len(rows(connection, "SELECT * FROM of_k WHERE k = 5")) == EACH
        first = served.run("verify")
        assert first.returncode == 0, first.stdout + first.stderr
        said = dict(re.findall(r"^(\w+): (?:agrees, compared )?(.+)$", first.stdout.replace("\n    ", " "),
                               re.MULTILINE))
        assert said["of_k"] == f"{VERIFY_KEYS * EACH} rows of {VERIFY_KEYS} keys of {KEYS}, " \
                               f"{VERIFY_KEYS} of them derived for this" or said["of_k"].startswith(
                               f"{(VERIFY_KEYS + 1) * EACH} rows of {VERIFY_KEYS + 1} keys of {KEYS}")
        assert re.match(rf"\d+ rows of {VERIFY_KEYS} keys of \d", said["of_both"])
        assert re.match(r"900 rows of 7 keys of 7", said["of_range"])
        assert said["of_nothing"].startswith("0 rows of 0 keys of 0")
        assert said["whole"] == "7 rows of all keys"
        assert said["unread"] == "nothing to compare: not looked up in yet: it keeps nothing"
        with served.connect() as connection:  # what was derived is maintained, and compared again after writes
            execute(connection, "UPDATE t SET k = k + 1 WHERE id < 450")
        again = served.run("verify", "of_k", "of_both")
        assert again.returncode == 0, again.stdout + again.stderr
    finally:
        served.close()
