"""`noria load`: files into a table, through Spark."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from noria.cli.options import DEFAULT_URL, Url


def command(
    table: Annotated[str, typer.Argument(help="The table to load into; it must exist, but for --create.")],
    files: Annotated[list[str], typer.Argument(
        help="CSV, JSON or Parquet as the server's host sees them: files, directories, patterns ('day-*/*.csv', "
             "quoted) and URLs of Spark's connectors (s3a://, hdfs://, http://). CSV and JSON may be compressed (.gz, "
             ".zst).")],
    format: Annotated[str, typer.Option(
        "--format", help="csv, json or parquet; by default what each file's name ends with. JSON is one object a line, "
                         "or, in a file that begins with [, one array of objects.")] = "",
    create: Annotated[bool, typer.Option(
        "--create", help="Make the table, with Parquet's types or those that Spark infers of CSV and JSON, and print "
                         "the CREATE TABLE. JSON's columns are ordered by name. Refused if there is such a table. If "
                         "the load fails the table stays, empty.")] = False,
    primary_key: Annotated[str, typer.Option(
        "--primary-key", help="With --create: the columns of its primary key, a,b.")] = "",
    multiline: Annotated[bool, typer.Option(
        "--multiline", help="Quoted fields of CSV may hold line ends. Each file is then read by one task, "
                            "whole.")] = False,
    reject: Annotated[Path | None, typer.Option(
        "--reject", resolve_path=True, help="Where rows that do not fit go, each with its reason; by default "
                                            "TABLE.rejected beside what is named first, of a URL here.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Load files into a table: Spark checks, sorts and builds the storage files, the worker takes them in.

    Columns are matched by name (CSV: by the header line).  Rows that do not fit the table go to the reject file.
    Compressed files, JSON arrays and URLs are unpacked into the server's data directory first.
    """
    named = [_absolute(f) for f in files]
    keys = [k.strip() for k in primary_key.split(",") if k.strip()]
    request: dict[str, Any] = {"table": table, "files": named, "format": format, "multiline": multiline,
                               "create": create, "primary_key": keys,
                               "reject": str(reject or _beside(named[0]) / f"{table}.rejected")}
    _run(request, url)


def _run(request: dict[str, Any], url: str) -> None:
    """Ask the server, and show how far it is."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from noria.client.transport import HttpTransport

    console = Console()
    started = time.monotonic()
    last: dict[str, Any] = {}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=None)
        for last in HttpTransport(url).load(request):
            if "statement" in last:
                console.print(f"{last['statement']};", markup=False, highlight=False, soft_wrap=True)
            progress.update(task, description=str(last.get("step", "")), total=last.get("total"),
                            completed=last.get("done", 0))
    seconds = time.monotonic() - started
    rows, rejected = last.get("rows", 0), last.get("rejected", 0)
    console.print(f"{rows:,} rows into {request['table']} in {seconds:.1f} s ({rows / seconds:,.0f} rows/s)")
    if rejected:
        console.print(f"{rejected:,} rows were rejected: see {request['reject']}", style="yellow")
        raise typer.Exit(2)


def _is_url(name: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", name) is not None


def _absolute(name: str) -> str:
    return name if _is_url(name) else os.path.abspath(name)


def _beside(name: str) -> Path:
    """The directory that a file, a directory or a pattern is in."""
    from noria.server.bulk.loading import fixed_part

    name = re.sub(r"^file://(?=/)", "", name)
    if _is_url(name):
        return Path.cwd()
    fixed = fixed_part(name)
    return Path(fixed) if fixed != name else Path(name).parent
