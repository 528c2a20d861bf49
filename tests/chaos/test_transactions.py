"""Transactions under random faults: histories without an anomaly that their level does not allow, and transfers whose
sum never changes.

    CHAOS_SECONDS=3  CHAOS_KILLS=2      how long, and how many processes are killed at least
    CHAOS_SEED=…                        (printed; in CI always the same)
    CHAOS_ONLY="kill worker"            only faults whose name has the text; "kill" if nothing is given
    CHAOS_WORKERS=3  CHAOS_FRONT_ENDS=2 of the server, instead of one and three workers
    CHAOS_VERIFY=1                      `noria verify` at the end, which starts a JVM
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.run import Shape
from chaos.transactions.run import TransactionRun
from e2e.serving import Served
from seeds import seed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(0)]
SECONDS, KILLS = float(os.environ.get("CHAOS_SECONDS", "3")), int(os.environ.get("CHAOS_KILLS", "2"))
LONG = "CHAOS_KILLS" in os.environ
ONLY, STORM = os.environ.get("CHAOS_ONLY", "kill"), int(os.environ.get("CHAOS_STORM", "2"))
GIVEN = os.environ.get("CHAOS_WORKERS")
CI_SEED = 5


@pytest.mark.parametrize("workers", [int(GIVEN)] if GIVEN else [pytest.param(1, marks=pytest.mark.long), 3])
def test_transactions_under_faults(tmp_path: Path, workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    number = seed("CHAOS_SEED", CI_SEED)
    shape = Shape(workers, int(os.environ.get("CHAOS_FRONT_ENDS", "2" if LONG and workers > 1 else "1")))
    with capfd.disabled():
        print(f"\nCHAOS_SEED={number} CHAOS_WORKERS={shape.workers} CHAOS_FRONT_ENDS={shape.fronts}", flush=True)
        options = shape.options() if os.environ.get("CHAOS_VERIFY") else shape.options()[:4]
        server = Served(tmp_path / "data", *options)
        try:
            _run(server, number, tmp_path, shape)
        finally:
            server.close()


def _run(server: Served, number: int, directory: Path, shape: Shape) -> None:
    run = TransactionRun(server, number, directory, shape, only=ONLY, storm=STORM)
    try:
        run.rounds(SECONDS, KILLS)
        print(run.finish("CHAOS_VERIFY" in os.environ), flush=True)
    except BaseException as error:
        error.add_note(f"{run.figures}\nrepeat with CHAOS_SEED={number}; what clients heard is in "
                       f"{run.world.journal.path}, at last:\n{run.world.journal.tail()}\nthe server's log ends:\n"
                       f"{server.log()[-3000:]}")
        run.halt()
        raise
