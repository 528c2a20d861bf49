"""Every number of front end, worker and nodes has a description, and the page is Prometheus' format."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import noria
from noria.dataflow.messages.packets import Inspect
from noria.server.answering.followed_tables import Followed
from noria.server.http.metrics import (
    DESCRIPTIONS,
    FOLLOW_DESCRIPTIONS,
    FRONT_END_DESCRIPTIONS,
    NODE_DESCRIPTIONS,
    render,
)


def test_every_number_is_described(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        transport: Any = db.transport
        numbers = transport.executor.stats()
        worker = transport.run(transport.executor.ask(Inspect(0, "stats")))
    assert set(numbers) <= set(DESCRIPTIONS)
    assert {f"worker_{k}" for k, v in worker.items() if isinstance(v, int | float)} <= set(DESCRIPTIONS)


def test_the_format() -> None:
    page = render({"reads_total": 7, "worker_memory": 5}).decode().splitlines()
    assert "# TYPE noria_reads_total counter" in page and "noria_reads_total 7.0" in page
    assert "# TYPE noria_worker_memory gauge" in page


def test_front_ends_have_labels() -> None:
    page = render({}, (), [dict.fromkeys(FRONT_END_DESCRIPTIONS, 1), dict.fromkeys(FRONT_END_DESCRIPTIONS, 2)]).decode()
    assert 'noria_front_end_reads_total{front_end="1"} 2.0' in page
    assert page.count("# HELP noria_front_end_") == len(FRONT_END_DESCRIPTIONS)


def test_followed_databases_have_labels() -> None:
    followed = Followed()
    followed.follow("x", "mysql://db:3306/shop", ["votes"])
    page = render({}, (), (), followed.numbers()).decode()
    assert 'noria_follow_lag_bytes{source="mysql://db:3306/shop"} 0.0' in page
    assert "noria_follow_lag_seconds{" not in page  # nothing was heard yet
    followed.statuses["x"].current = time.monotonic() - 5
    assert 5 <= followed.numbers()[0]["lag_seconds"] < 60
    assert page.count("# HELP noria_follow_") == len(FOLLOW_DESCRIPTIONS)


def test_nodes_have_labels(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a")
        db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
        transport: Any = db.transport
        page = render({}, transport.run(transport.executor.ask(Inspect(0, "graph")))).decode()
    does = r"aggregate count_star\(\*\) by a( of each worker)?"
    assert re.search(rf'noria_node_rows_in_total{{does="{does}",node="n1"}} 3.0', page)
    assert re.search(r'noria_node_essential{does="reader v",node="n\d+"} 1.0', page)
    assert page.count("# HELP noria_node_") == len(NODE_DESCRIPTIONS)
