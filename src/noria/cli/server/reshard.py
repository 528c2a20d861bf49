"""`noria reshard`: converts a stopped server's data to another number of workers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    data_dir: Annotated[Path, typer.Option("--data-dir", "--data", help="The data directory of a stopped server.")],
    workers: Annotated[int, typer.Option("--workers", help="The new number of workers.")],
    drop_old: Annotated[bool, typer.Option(
        "--drop-old", help="Remove the old stores once the new ones are verified and in place.")] = False,
    again: Annotated[bool, typer.Option(
        "--again", help="Run even if the data has so many workers already: moves misplaced rows, which `noria check` "
                        "reports, to the workers that own them.")] = False,
) -> None:
    """Divide the rows of a data directory among another number of workers.

    Every row and index entry is written to new stores, which are verified and then replace the old ones.  If this is
    interrupted, the old stores are unchanged; run again, it continues with the missing tables.
    """
    from noria.cli.interrupts import Interrupted, interruptible
    from noria.control.processes.leases import CannotClaim, Claim
    from noria.server.settings import SettingsError, check_workers
    from noria.spark.hosting.session import SparkUnavailable
    from noria.storage.offline import resharding
    from noria.storage.rocks import recovery
    from noria.storage.rocks.errors import StoreError
    from noria.storage.rocks.options import table_options
    from noria.storage.tables import shards
    from noria.storage.tables.shards import BEFORE

    try:
        check_workers(workers)
    except SettingsError as e:
        sys.exit(f"noria reshard: {e}")
    data_dir = data_dir.absolute()
    if not (data_dir / "epoch").exists():  # written by every claim of a directory
        sys.exit(f"noria reshard: {data_dir} is no data directory of noria")
    try:
        claim = Claim(data_dir)
    except CannotClaim as e:
        sys.exit(f"noria reshard: {e}")
    try:
        for base in shards.bases(data_dir) if not resharding.is_switching(data_dir) else ():
            recovery.check_format(str(base), table_options)
        with interruptible():
            said = _resharded(data_dir, workers, claim.next_epoch(), again)
        if drop_old:
            resharding.forget(data_dir)
        kept = (data_dir / BEFORE).exists()
        print(f"{data_dir}: {said}" + (f"; the old stores are in {data_dir / BEFORE}: --drop-old removes them"
                                       if kept else ""))
    except Interrupted as e:
        print("noria reshard: stopped; "
              + ("the new stores are what counts: run it again before the server" if resharding.is_switching(data_dir)
                 else "the data is as it was, and another run goes on from here"), file=sys.stderr)
        raise typer.Exit(128 + e.number) from None
    except (CannotClaim, StoreError, SparkUnavailable, OSError) as e:
        sys.exit(f"noria reshard: {e}")
    finally:
        claim.release()


def _resharded(data_dir: Path, workers: int, epoch: int, again: bool) -> str:
    """Convert the data; return a description of the result."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from noria.spark.jobs.resharding import Resharding

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("looking", total=None, rate="")

        def report_progress(what: str, done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, description=what, completed=done, total=total,
                       rate="" if speed is None else f"{speed:,.0f} rows/s")

        return Resharding(data_dir, workers, epoch, report_progress, again=again).run()
