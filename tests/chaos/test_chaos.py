"""A server under random faults (`faults.py`) while clients write and read: what is acknowledged stays, once; what is
not is whole or not there; views are their queries' results; errors are the permitted ones; everything goes on.

    CHAOS_SECONDS=90  CHAOS_KILLS=0     how long (in CI 45), and how many processes are killed at least
    CHAOS_SEED=…                        (printed; in CI always the same)
    CHAOS_ONLY="kill worker"            only faults whose name has the text
    CHAOS_WORKERS=3  CHAOS_FRONT_ENDS=2 of the server (drawn by the seed, and printed)
    CHAOS_STORM=3                       how often the worker is killed in a row, at most
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.clock import COMPILER, Clock
from chaos.faults import small_disk
from chaos.run import Run, Shape
from e2e.serving import Served, rows
from seeds import seed

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(0)]
SECONDS = float(os.environ.get("CHAOS_SECONDS", "45" if os.environ.get("CI") else "90"))
KILLS = int(os.environ.get("CHAOS_KILLS", "0"))
ONLY, STORM = os.environ.get("CHAOS_ONLY", ""), int(os.environ.get("CHAOS_STORM", "3"))
CI_SEED = 2


def shape(number: int) -> Shape:
    drawn = Shape.drawn(number)
    return Shape(int(os.environ.get("CHAOS_WORKERS", drawn.workers)),
                 int(os.environ.get("CHAOS_FRONT_ENDS", drawn.fronts)))


def test_faults_while_clients_write_and_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    number = seed("CHAOS_SEED", CI_SEED)
    drawn = shape(number)
    with capfd.disabled():
        print(f"\nCHAOS_SEED={number} CHAOS_WORKERS={drawn.workers} CHAOS_FRONT_ENDS={drawn.fronts}", flush=True)
        with small_disk(tmp_path / "disk", 256 + 128 * drawn.workers) as disk:
            if disk is None:
                print("this user cannot mount a small disk: faults of a full disk are left out", flush=True)
            if COMPILER is None:
                print("there is no C compiler: jumps of the clock are left out", flush=True)
            clock = Clock(tmp_path) if COMPILER else None
            server = Served((disk or tmp_path) / "data", *drawn.options(),
                            environment=clock.environment if clock else {})
            try:
                _run(server, number, tmp_path, drawn, disk, clock)
            finally:
                server.close()


def _run(server: Served, number: int, directory: Path, drawn: Shape, disk: Path | None, clock: Clock | None) -> None:
    run = Run(server, number, directory, drawn, disk, clock, ONLY, STORM)
    try:
        run.rounds(SECONDS, KILLS)
        print(run.finish(), flush=True)
    except BaseException as error:
        error.add_note(f"{run.figures}\nrepeat with CHAOS_SEED={number}; what clients heard is in "
                       f"{run.world.journal.path}, at last:\n{run.world.journal.tail()}\nthe server's log ends:\n"
                       f"{server.log()[-3000:]}\nwhat it is doing: {_doing(server)}")
        run.halt()
        raise


def _doing(server: Served) -> object:
    """Statements under way, what they wait for, and what is being built, as far as it tells."""
    try:
        with server.connect() as connection:
            return {what: rows(connection, f"SHOW {what}") for what in (
                "FULL PROCESSLIST", "NORIA MIGRATIONS", "NORIA STATUS")}
    except Exception as error:
        return error
