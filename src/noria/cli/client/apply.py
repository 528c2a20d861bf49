"""`noria apply`: makes the running program equal to the program in a file.

Keeps true: the change is shown first, and must be confirmed unless `--yes` is given.  After an interrupt the command
reports whether the program changed, once that is certain.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noria.cli.options import DEFAULT_URL, Url

if TYPE_CHECKING:
    from noria.client.transport import HttpTransport

LOOK_S = 0.1  # between two checks of a change that is being cancelled


def command(
    file: Annotated[str, typer.Argument(
        help="CREATE TABLE, CREATE VIEW, CREATE INDEX and ALTER TABLE statements; - for standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change, and do nothing.")] = False,
    drop: Annotated[bool, typer.Option(
        "--drop", help="Drop tables, views and columns that are not in the file, with their rows and "
                       "values.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Compare the running program with a file and install the difference as one change, all or nothing.

    The change is shown first: what is added, changed and dropped, what the new views share, and which states must be
    filled from how many rows.  Reads and writes continue meanwhile.  Status 0: the program is what the file says; 1: it
    is unchanged.
    """
    from noria.cli.interrupts import Interrupted, interruptible
    from noria.client.transport import HttpTransport

    text = sys.stdin.read() if file == "-" else _text(file)
    server = HttpTransport(url)
    shown = _preview(server, {"program": text, "drop": drop, "dry_run": True})
    print("\n".join(shown["lines"]))
    if dry_run or shown["empty"]:
        return
    if not yes and not _agreed(file == "-"):
        sys.exit("noria apply: nothing was done")
    sessions: list[int] = []
    try:
        with interruptible():
            _applied(server, {"program": text, "drop": drop, "expect": shown["digest"]}, sessions)
    except Interrupted:
        _ended(server, sessions)
        again = _preview(server, {"program": text, "drop": drop, "dry_run": True})
        sys.exit("noria apply: interrupted, but it was too late: the program is changed; what is left is filled in the "
                 "background (SHOW NORIA MIGRATIONS)" if again["empty"] else
                 "noria apply: interrupted: the program is as it was")
    print("the program is what the file says")


def _text(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as e:
        raise ValueError(f"{file} cannot be read: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise ValueError(f"{file} is no UTF-8 text: {e}") from None


def _agreed(piped: bool) -> bool:
    """Ask for confirmation; without a terminal, end the command unless --yes is given."""
    if piped or not sys.stdin.isatty():
        sys.exit("noria apply: nothing was done: give --yes where nobody can be asked")
    return typer.confirm("Install this?")


def _preview(server: HttpTransport, request: dict[str, Any]) -> dict[str, Any]:
    (last,) = server.lines("/apply", request)
    shown: dict[str, Any] = last["preview"]
    return shown


def _ended(server: HttpTransport, sessions: list[int]) -> None:
    """Kill the running change, and wait until it has ended."""
    from noria.core.errors import SqlError

    for number in sessions:
        with suppress(SqlError):  # KILL fails when the session has ended
            while True:
                server.sql(f"KILL QUERY {number}", [])
                time.sleep(LOOK_S)


def _applied(server: HttpTransport, request: dict[str, Any], sessions: list[int]) -> None:
    """Make the change; append the session number by which it can be killed to `sessions`."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    with bar as progress, closing(server.lines("/apply", request)) as lines:
        task = progress.add_task("starting", total=None)
        for line in lines:
            sessions += [line["session"]] if "session" in line else []
            if "step" in line:
                progress.update(task, description=line["step"], total=None, completed=0)
            for build in line.get("builds", ())[:1]:
                progress.update(task, description=build["what"], total=build["of"] or None, completed=build["rows"])
