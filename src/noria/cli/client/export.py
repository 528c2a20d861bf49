"""`noria export`: writes a table, a view or a query to files, through Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noria.cli.options import DEFAULT_URL, Url


def command(
    what: Annotated[str, typer.Argument(metavar="TABLE|VIEW|QUERY", help="A table, a view, or one SELECT.")],
    directory: Annotated[Path, typer.Argument(
        resolve_path=True, help="The directory for the files, on the server's host: new or empty.")],
    to: Annotated[str, typer.Option("--to", help="parquet, csv or json (one object a line).")] = "parquet",
    overwrite: Annotated[bool, typer.Option(
        "--overwrite", help="Replace the files of an earlier export, once the new ones are whole.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Write all rows, as of one moment between two commits, to files that `noria load` reads.

    The directory exists only when it is whole.  In CSV the field \\N is NULL and "" is the empty text.
    """
    from rich.console import Console

    from noria.cli.progress import steps
    from noria.client.transport import HttpTransport

    console = Console()
    request = {"what": what, "to": to, "directory": str(directory), "overwrite": overwrite}
    last, seconds = steps(HttpTransport(url).export(request), console)
    console.print(f"{last['rows']:,} rows in {last['files']} files in {directory} in {seconds:.1f} s "
                  f"({last['rows'] / seconds:,.0f} rows/s)", soft_wrap=True)
    if last.get("multiline"):
        console.print("some texts have line ends: load them with --multiline", style="yellow")
