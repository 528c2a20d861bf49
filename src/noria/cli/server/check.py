"""`noria check`: searches a stopped server's data for damage and misplaced rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from noria.storage.offline.check import StoreCheckReport

UNREADABLE = 3  # the status if nothing could be checked


def command(
    data_dir: Annotated[Path, typer.Argument(help="The data directory of a stopped server.")],
    accept_loss: Annotated[bool, typer.Option(
        "--accept-loss", help="First give up, for good, the changes that the write-ahead log has lost, so that the "
                              "server starts again with the rest.")] = False,
) -> None:
    """Read every block of every file and of the write-ahead log, and compare every index with its table.
    Among several workers, also report misplaced rows: rows stored on a worker that does not own their key.

    Status 0: all is whole; 1: damage was found and listed with table, index and file; 3: a newer version wrote the
    data, and nothing was checked.
    """
    from noria.control.processes.leases import CannotClaim, Claim
    from noria.storage.rocks.errors import StoreError, StoreNewer
    from noria.storage.tables import shards

    try:
        found = shards.bases(data_dir)
        claim = Claim(data_dir)
    except (CannotClaim, StoreError) as e:
        sys.exit(f"noria check: {e}")
    try:
        reports = [_checked(base, accept_loss, w, len(found)) for w, base in enumerate(found)]
    except StoreNewer as e:
        print(f"noria check: {e}", file=sys.stderr)
        raise typer.Exit(UNREADABLE) from None
    except StoreError as e:
        sys.exit(f"noria check: {e}")
    finally:
        claim.release()
    findings = [f"worker {w}: {finding}" if len(found) > 1 else finding
                for w, report in enumerate(reports) for finding in report.findings]
    for finding in findings:
        print(finding)
    if any(report.misplaced for report in reports):
        print(f"noria reshard --data-dir {data_dir} --workers {len(found)} --again brings every row to the worker that "
              "it belongs to")
    rows = sum(rows for report in reports for rows in report.tables.values())
    tables = {name for report in reports for name in report.tables}
    print(f"{data_dir}: {len(tables)} tables, {rows:,} rows, {max(r.indexes for r in reports)} indexes: "
          + (f"{len(findings)} findings" if findings else "all whole"))
    raise typer.Exit(1 if findings else 0)


def _checked(base: Path, accept_loss: bool, worker: int, workers: int) -> StoreCheckReport:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from noria.storage.offline.check import StoreCheck
    from noria.storage.rocks import recovery
    from noria.storage.rocks.options import table_options

    if accept_loss:
        lost = recovery.accept_loss(str(base), table_options)
        print(f"{base}: {lost:,} acknowledged changes are given up" if lost else f"{base}: the log is taken as it is")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("the write-ahead log", total=None)

        def report_progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        return StoreCheck(str(base), report_progress, accept_loss, worker, workers).run()
