"""`noria sql`: statements from the command line or standard input, over HTTP."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from noria.cli.options import DEFAULT_URL, Url


def command(
    statement: Annotated[list[str] | None, typer.Argument(
        help="SQL statements, one an argument; none: read from standard input, each ended by a `;` at the end of "
             "a line.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Run SQL on a running server and print what it gives.

    Examples:

        noria sql "SELECT * FROM StoriesWithVC WHERE id = 7"

        noria sql < schema.sql
    """
    from noria.client import connect

    with connect(url) as db:
        for text in statement or statements(sys.stdin.read()):
            started = time.perf_counter()
            result = db.sql(text)
            show(result, (time.perf_counter() - started) * 1000)


def statements(text: str) -> list[str]:
    """The statements of a file: each ends with a `;` at the end of a line, or with the file."""
    found: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        if not line.strip() or (not lines and line.lstrip().startswith(("--", "#"))):
            continue
        lines.append(line)
        if line.rstrip().endswith(";"):
            found.append("\n".join(lines).rstrip().removesuffix(";"))
            lines = []
    if lines:
        found.append("\n".join(lines))
    return found


def show(result: object, took_ms: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from noria.client import Result

    assert isinstance(result, Result)
    console = Console()
    for level, code, message in result.warnings:
        console.print(f"{level} {code}: {message}", style="yellow", markup=False)
    if result.arrow is None:
        told = f", id {result.last_insert_id}" if result.last_insert_id else ""
        console.print(f"ok, {result.affected} rows affected{told} ({took_ms:.1f} ms)")
        return
    table = Table(*result.columns)
    for row in result.rows:
        table.add_row(*("NULL" if v is None else str(v) for v in row))
    console.print(table)
    console.print(f"{len(result.rows)} rows ({took_ms:.1f} ms)")
