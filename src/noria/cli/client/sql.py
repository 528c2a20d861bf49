"""`noria sql`: runs statements from the command line, standard input or a prompt, over HTTP."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from noria.cli.options import DEFAULT_URL, Url

HISTORY = Path("~/.noria_history")
HISTORY_LINES = 1_000
PROMPT, MORE = "noria> ", "    -> "


class Format(StrEnum):
    """The formats in which rows are printed."""

    table = "table"
    csv = "csv"
    json = "json"


def command(
    statement: Annotated[list[str] | None, typer.Argument(
        help="SQL statements, one for each argument. Without any they are read from standard input, each ended by a "
             "`;` at the end of a line; at a terminal with a prompt and a history.")] = None,
    url: Url = DEFAULT_URL,
    format: Annotated[Format, typer.Option("--format", help="How rows are printed: csv has a line of names, json one "
                                                            "object a line.")] = Format.table,
) -> None:
    """Run SQL on a running server and print the results.

    Examples:

        noria sql "SELECT * FROM StoriesWithVC WHERE id = 7"

        noria sql < schema.sql

        noria sql --format csv "SELECT * FROM votes" > votes.csv
    """
    from noria.client import connect

    with connect(url) as db:
        if statement or not sys.stdin.isatty():
            for text in statement or statements(sys.stdin.read()):
                run(db, text, format)
        else:
            _prompt(db, format)


_USE = re.compile(r"\s*USE\s+(?:`((?:[^`]|``)+)`|([^\s`;]+))\s*;?\s*", re.IGNORECASE)


def run(db: Any, text: str, format: Format) -> None:
    started = time.perf_counter()
    if (used := _USE.fullmatch(text)) is not None:  # each request has its own session
        db.use((used[1] or used[2]).replace("``", "`"))
        return
    result = db.sql(text)
    show(result, (time.perf_counter() - started) * 1000, format)


def statements(text: str) -> list[str]:
    """Split a file into statements: each ends with a `;` at the end of a line, or with the file."""
    return list(ended(iter(text.splitlines())))


def ended(lines: Iterator[str]) -> Iterator[str]:
    """Yield each statement as soon as its last line was read."""
    found: list[str] = []
    for line in lines:
        if not line.strip() or (not found and line.lstrip().startswith(("--", "#"))):
            continue
        found.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(found).rstrip().removesuffix(";")
            found.clear()
    if found:
        yield "\n".join(found)


# ---------------------------------------------------------------- the prompt
def _prompt(db: Any, format: Format) -> None:
    """Run statements until the input ends, or `exit`.  Errors are printed; an interrupt discards the typed text."""
    import readline

    from noria.core.errors import SqlError

    path = Path(os.environ.get("NORIA_HISTORY", HISTORY)).expanduser()
    if path.exists():
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LINES)
    print(f"{db!r}: end a statement with `;`, leave with Ctrl-D", file=sys.stderr)
    try:
        while True:
            try:
                for text in ended(_typed()):
                    if text.strip().lower() in ("exit", "quit"):
                        return
                    run(db, text, format)
                return
            except SqlError as e:
                print(f"error {e.code} ({e.state}): {e.message}", file=sys.stderr)
            except (ConnectionError, ValueError) as e:
                print(f"error: {e}", file=sys.stderr)
            except KeyboardInterrupt:
                print(file=sys.stderr)
    finally:
        readline.write_history_file(path)


def _typed() -> Iterator[str]:
    """Yield the typed lines; `exit` alone is a statement."""
    begun = False
    while True:
        try:
            line = input(MORE if begun else PROMPT)
        except EOFError:
            print(file=sys.stderr)
            return
        if not begun and line.strip().lower() in ("exit", "quit"):
            line += ";"
        begun = bool(line.strip()) and not line.rstrip().endswith(";")
        yield line


# ---------------------------------------------------------------- results
def show(result: Any, took_ms: float, format: Format = Format.table, out: TextIO | None = None) -> None:
    """Print rows on standard output; messages go to standard error, except with tables."""
    from rich.console import Console

    out = out or sys.stdout
    console = Console(file=out if format is Format.table else sys.stderr)
    for level, code, message in result.warnings:
        console.print(f"{level} {code}: {message}", style="yellow", markup=False)
    if result.arrow is None:
        inserted_id = f", id {result.last_insert_id}" if result.last_insert_id else ""
        console.print(f"ok, {result.affected} rows affected{inserted_id} ({took_ms:.1f} ms)")
    elif format is Format.table:
        _show_table(console, result, took_ms)
    elif format is Format.csv:
        write = csv.writer(out, lineterminator="\n")
        write.writerow(result.columns)
        write.writerows([["" if v is None else v for v in row] for row in result.rows])
    else:
        for row in result.rows:
            out.write(json.dumps(dict(zip(result.columns, row, strict=True)), default=str, ensure_ascii=False) + "\n")


def _show_table(console: Any, result: Any, took_ms: float) -> None:
    from rich.table import Table

    table = Table()
    for name in result.columns:
        table.add_column(name, overflow="fold")
    for row in result.rows:
        table.add_row(*("NULL" if v is None else str(v) for v in row))
    console.print(table, markup=False)
    console.print(f"{len(result.rows)} rows ({took_ms:.1f} ms)")
