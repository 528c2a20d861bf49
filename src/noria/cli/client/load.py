"""`noria load`: loads files into a table, through Spark.

Keeps true: after an interrupt, the command reports whether the rows were loaded, or says that it does not know.
"""

from __future__ import annotations

import os
import re
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noria.cli.options import DEFAULT_URL, Url

if TYPE_CHECKING:
    from noria.client.transport import HttpTransport

REJECTED = 3  # the status if some rows were rejected
LOOK_S, OUTCOME_WAIT_S = 0.1, 60.0  # between two checks of an interrupted load, and until the last one



def command(
    table: Annotated[str, typer.Argument(help="The table to load into; it must exist, except with --create.")],
    files: Annotated[list[str], typer.Argument(
        help="CSV, JSON or Parquet on the server's host: files, directories, patterns ('day-*/*.csv', "
             "quoted) and URLs of Spark's connectors (s3a://, hdfs://, http://). CSV and JSON may be compressed (.gz, "
             ".zst).")],
    format: Annotated[str, typer.Option(
        "--format", help="csv, json or parquet; by default the ending of each file's name. JSON is one object a line, "
                         "or, in a file that begins with [, one array of objects.")] = "",
    create: Annotated[bool, typer.Option(
        "--create", help="Make the table and print its CREATE TABLE. Its types are Parquet's, or those that all "
                         "fields of CSV and JSON fit. JSON's columns are ordered by name. Rejected if the table "
                         "exists. If the load fails, the empty table stays.")] = False,
    primary_key: Annotated[str, typer.Option(
        "--primary-key", help="With --create: the columns of its primary key, a,b.")] = "",
    delimiter: Annotated[str | None, typer.Option(
        "--delimiter", help="The separator of CSV fields: one character, or \\t for a tab; by default a comma, "
                            "and a tab in .tsv.")] = None,
    no_header: Annotated[bool, typer.Option(
        "--no-header", help="The first line of CSV is a row, not a header. Its fields are the table's columns "
                            "in order, "
                            "or those of --columns.")] = False,
    columns: Annotated[str, typer.Option(
        "--columns", help="Names for the fields of CSV, a,b,c, in the order of the file. They replace those of "
                          "a header "
                          "line.")] = "",
    null: Annotated[str | None, typer.Option(
        "--null", help="The unquoted field of CSV that means NULL; by default \\N. '' makes every empty field "
                       "NULL.")] = None,
    decimal: Annotated[str | None, typer.Option(
        "--decimal", help="The decimal point of numbers in CSV: . or , (12,50).")] = None,
    date_format: Annotated[str | None, typer.Option(
        "--date-format", help="The format of dates in CSV, such as %d.%m.%Y or '%m/%d/%y %I:%M %p'. If it has "
                              "no time, a "
                              "DATETIME may be followed by one as in SQL.")] = None,
    encoding: Annotated[str | None, typer.Option(
        "--encoding", help="The encoding of CSV and JSON: utf-8 (the default), latin-1, windows-1252, utf-16 or "
                           "any other "
                           "that Python has.")] = None,
    quote: Annotated[str | None, typer.Option(
        "--quote", help="The quote of CSV fields, by default \"; inside a field it is doubled. '' for none.")] = None,
    escape: Annotated[str | None, typer.Option(
        "--escape", help="The escape character of CSV; by default there is none. '\\' for files of MySQL's "
                         "SELECT … INTO OUTFILE and mysqldump --tab.")] = None,
    multiline: Annotated[bool, typer.Option(
        "--multiline", help="Quoted fields of CSV may contain line ends. Each file is then read by one "
                            "task.")] = False,
    on_duplicate: Annotated[str, typer.Option(
        "--on-duplicate", help="How to treat a row whose key is already stored or repeated in the files. error: "
                               "nothing "
                               "is loaded if a key is stored; of two rows in the files the second is rejected. "
                               "ignore: the stored row stays. replace: it is replaced. The last two write "
                               "statements of 10,000 rows, so others may see a part; if interrupted, load "
                               "again.")] = "error",
    once: Annotated[str, typer.Option(
        "--once", help="A name for this load, which is done once under it. Repeat the command with the same name if "
                       "you do not know whether it was done.")] = "",
    max_rejects: Annotated[int | None, typer.Option(
        "--max-rejects", min=0, help="Load nothing if more rows than this are rejected; by default any number may "
                                     "be.")] = None,
    reject: Annotated[Path | None, typer.Option(
        "--reject", resolve_path=True, help="The file for rejected rows, each with its reason; by default "
                                            "TABLE.rejected beside the first of FILES, or here if that is a "
                                            "URL.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Load files into a table: Spark checks and sorts the rows and builds storage files, which the worker ingests.

    Columns are matched by name (CSV: by the header line).  Rows that do not fit the table are written to the reject
    file.  Compressed files, JSON arrays and URLs are first unpacked into the server's data directory.  Status 0: all
    rows are loaded; 3: some were rejected; 1: nothing was loaded.
    """
    named = [_absolute(f) for f in files]
    keys = [k.strip() for k in primary_key.split(",") if k.strip()]
    names = [c.strip() for c in columns.split(",")] if columns else None
    how = {"delimiter": delimiter, "header": False if no_header else None, "columns": names, "null": null,
           "decimal": decimal, "date_format": date_format, "encoding": encoding, "quote": quote, "escape": escape}
    request: dict[str, Any] = {**how, "table": table, "files": named, "format": format, "multiline": multiline,
                               "create": create, "primary_key": keys, "on_duplicate": on_duplicate,
                               "once": once or f"cli-{uuid.uuid4().hex}",
                               "max_rejects": max_rejects,
                               "reject": str(reject or _beside(named[0]) / f"{table}.rejected")}
    _run(request, url)


def _run(request: dict[str, Any], url: str) -> None:
    """Send the request to the server, show the progress, and print the result."""
    from rich.console import Console

    from noria.cli.interrupts import Interrupted, interruptible
    from noria.cli.progress import steps
    from noria.client.transport import HttpTransport

    console, server = Console(), HttpTransport(url)
    try:
        with interruptible(), closing(server.load(request)) as reports:
            last, seconds = steps(reports, console)
    except Interrupted as e:
        print(f"noria load: interrupted: {_became(server, request)}", file=sys.stderr)
        raise typer.Exit(128 + e.number) from None
    rows, rejected = last.get("rows", 0), last.get("rejected", 0)
    if last.get("again"):
        console.print(f"nothing to do: the load named {request['once']} was done before")
        return
    met = "".join(f", {last[what]:,} {what}" for what in ("ignored", "replaced") if last.get(what))
    console.print(f"{rows:,} rows into {request['table']}{met} in {seconds:.1f} s ({rows / seconds:,.0f} rows/s)")
    if rejected:
        console.print(f"{rejected:,} rows were rejected: see {request['reject']}", style="yellow")
        raise typer.Exit(REJECTED)


def _became(server: HttpTransport, request: dict[str, Any]) -> str:
    """Describe the outcome of an interrupted load, after the server cancelled or finished it; wait up to
    OUTCOME_WAIT_S."""
    from noria.core.errors import SqlError

    table, state, until = request["table"], "under way", time.monotonic() + OUTCOME_WAIT_S
    try:
        while state == "under way" and time.monotonic() < until:
            state = server.loaded(request["once"])
            time.sleep(LOOK_S if state == "under way" else 0)
    except (ConnectionError, SqlError) as e:
        return f"whether rows are in {table} is not known: {e}"
    if state != "nothing":
        return f"it was too late: the rows are in {table}" if state == "done" else "the server still works at it"
    made = f"; the table {table} stays if it was made" if request["create"] else ""
    if request["on_duplicate"] != "error":
        return f"the rows that were written before stay in {table}: load again to write all{made}"
    return f"nothing was loaded into {table}{made}"


def _absolute(name: str) -> str:
    from noria.server.bulk.load_permit import is_url

    return name if is_url(name) else os.path.abspath(name)


def _beside(name: str) -> Path:
    """Return the directory that contains a file, a directory or a pattern; for a URL, the working directory."""
    from noria.server.bulk.load_permit import fixed_part, is_url

    name = re.sub(r"^file://(?=/)", "", name)
    if is_url(name):
        return Path.cwd()
    fixed = fixed_part(name)
    return Path(fixed) if fixed != name else Path(name).parent
