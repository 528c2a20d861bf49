"""A bulk load among the faults: it is there, whole, or not at all; what is acknowledged is seen by the next read."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from chaos.workload.clients import PATIENCE_S, Failure, World, plain
from e2e.serving import rows, until

if TYPE_CHECKING:
    from chaos.faults import Stage

ROWS, GROUPS = 2_000, 7
MADE = ("CREATE TABLE loaded (id INT PRIMARY KEY, n INT NOT NULL, u INT NOT NULL, UNIQUE (u))",
        "CREATE VIEW load_sums AS SELECT n, COUNT(*) AS c, SUM(id) AS s FROM loaded WHERE n = ? GROUP BY n",
        "CREATE MATERIALIZED VIEW load_all AS SELECT n, COUNT(*) AS c, MAX(u) AS hi FROM loaded GROUP BY n",
        "CREATE MATERIALIZED VIEW load_count AS SELECT COUNT(*) AS c FROM loaded")
Row = tuple[int, int, int]


class Loaded:
    """What the table holds: that of all loads which were acknowledged."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._next = 0

    def batch(self) -> list[Row]:
        first, self._next = self._next, self._next + ROWS
        return [(i, i % GROUPS, 10**8 - i) for i in range(first, self._next)]

    def wanted(self) -> dict[str, Counter[Any]]:
        """By query, its rows."""
        by = {n: [r for r in self.rows if r[1] == n] for n in range(GROUPS)}
        sums = {f"SELECT n, c, s FROM load_sums WHERE n = {n}":
                Counter([(n, len(found), sum(r[0] for r in found))] if found else []) for n, found in by.items()}
        return {"SELECT c FROM load_count": Counter([(len(self.rows),)]), **sums,
                "SELECT n, c, hi FROM load_all": Counter((n, len(f), max(r[2] for r in f)) for n, f in by.items() if f)}


def loading(*meanwhile: Callable[[Stage], None]) -> Callable[[Stage], None]:
    """`noria load`, and after a while what goes wrong meanwhile."""

    def act(stage: Stage) -> None:
        world, told = stage.world, list[subprocess.CompletedProcess[str]]()
        model: Loaded = stage.loaded
        some = model.batch()
        path = world.directory / f"load-{some[0][0]}.csv"
        path.write_text("id,n,u\n" + "".join(f"{i},{n},{u}\n" for i, n, u in some))
        client = threading.Thread(target=lambda: told.append(
            world.server.run("load", "loaded", str(path), timeout_s=PATIENCE_S)), daemon=True)
        client.start()
        stage.lasts(0, 8.0 if meanwhile else 0.1)
        for one in meanwhile:
            one(stage)
        client.join(PATIENCE_S)
        path.unlink()
        if not told:
            raise Failure(f"noria load has no answer after {PATIENCE_S} s")
        _judge(world, model, some, told[0], bool(meanwhile))

    return act


def _judge(world: World, model: Loaded, some: Sequence[Row], told: subprocess.CompletedProcess[str], faulty: bool
           ) -> None:
    text = f"{told.stdout}\n{told.stderr}"[-400:]
    if told.returncode == 0:
        model.rows += some
        world.journal("loads", "load acknowledged", rows=len(some))
        with world.server.connect() as connection:
            _same(model, connection, "right after it was acknowledged")
        return
    if not faulty:
        raise Failure(f"noria load failed, and nothing was wrong: {text}")
    until("the worker is up after a load", lambda: world.server.health()["status"] == "ok", PATIENCE_S)
    with world.server.connect() as connection:
        [(found,)] = rows(connection, f"SELECT COUNT(*) FROM loaded WHERE id >= {some[0][0]}")
    if found not in (0, len(some)):
        raise Failure(f"of a load of {len(some)} rows {found} are there: {text}")
    model.rows += some if found else []
    world.journal("loads", f"load not acknowledged, {'whole' if found else 'not'} there", text=text)


def compare(model: Loaded, connection: Any) -> None:
    _same(model, connection, "at rest")


def _same(model: Loaded, connection: Any, when: str) -> None:
    for text, want in model.wanted().items():
        if (found := plain(rows(connection, text))) != want:
            raise Failure(f"after loads, {when}: {text}\nfound {found}\nwanted {want}")
