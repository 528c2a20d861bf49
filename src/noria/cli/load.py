"""`noria load`: files into a table, through Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from noria.cli.options import DEFAULT_URL, Url


def command(
    table: Annotated[str, typer.Argument(help="The table to load into; it must exist.")],
    files: Annotated[list[Path], typer.Argument(
        exists=True, resolve_path=True, help="CSV, JSON (one object a line) or Parquet, as the server's host sees "
                                             "them.")],
    format: Annotated[str, typer.Option(
        "--format", help="csv, json or parquet; by default what the first file's name ends with.")] = "",
    reject: Annotated[Path | None, typer.Option(
        "--reject", resolve_path=True, help="Where rows that do not fit go, each with its reason; by default "
                                            "TABLE.rejected beside the first file.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Load files into a table: Spark checks, sorts and builds the storage files, the worker takes them in.

    Columns are matched by name (CSV: by the header line).  Rows that do not fit the table go to the reject file.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from noria.client.transport import HttpTransport

    kind = format or _format(files[0])
    request = {"table": table, "files": [str(f) for f in files], "format": kind,
               "reject": str(reject or files[0].parent / f"{table}.rejected")}
    console = Console()
    started = time.monotonic()
    last: dict[str, Any] = {}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=None)
        for last in HttpTransport(url).load(request):
            progress.update(task, description=str(last.get("step", "")), total=last.get("total"),
                            completed=last.get("done", 0))
    seconds = time.monotonic() - started
    rows, rejected = last.get("rows", 0), last.get("rejected", 0)
    console.print(f"{rows:,} rows into {table} in {seconds:.1f} s ({rows / seconds:,.0f} rows/s)")
    if rejected:
        console.print(f"{rejected:,} rows were rejected: see {request['reject']}", style="yellow")
        raise typer.Exit(2)


def _format(path: Path) -> str:
    endings = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
               ".parquet": "parquet"}
    names = [path.suffix, *(p.suffix for p in path.glob("*"))] if path.is_dir() else [path.suffix]
    for name in names:
        if name in endings:
            return endings[name]
    raise ValueError(f"{path.name} does not say what it is: give --format csv, json or parquet")
