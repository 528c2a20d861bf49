"""`noria`: the command line.  Every module below this package with a function `command` is one command.

Keeps true: after a user's mistake, a command prints one line on stderr, no stack trace, and exits with status 1.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Annotated

import typer

import noria
import noria.cli

app = typer.Typer(
    name="noria", no_args_is_help=True, rich_markup_mode=None,
    help="Noria on Spark: a database for read-heavy applications, whose queries are views kept fresh as you write.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"noria {noria.__version__}")
        raise typer.Exit


@app.callback()
def options(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True,
                                                  help="Print the version and exit.")] = False) -> None:
    """Noria on Spark: a database for read-heavy applications, whose queries are views kept fresh as you write."""


def register() -> None:
    found = {m.name.rpartition(".")[2]: m.name for m in pkgutil.walk_packages(noria.cli.__path__, "noria.cli.")}
    for name, module in sorted(found.items()):
        command = getattr(importlib.import_module(module), "command", None)
        if command is not None:
            app.command(name.replace("_", "-"))(command)


def run() -> None:
    from noria.core.errors import SqlError

    register()
    try:
        app()
    except SqlError as e:
        sys.exit(f"noria: error {e.code} ({e.state}): {e.message}")
    except (ConnectionError, ValueError) as e:
        sys.exit(f"noria: {e}")


if __name__ == "__main__":
    run()
