"""Options that several commands share."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[str, typer.Option(
    "--url", envvar="NORIA_URL", metavar="URL",
    help="The server: http[s]://[user:password@]HOST:PORT, the address after `http=` in its ready line.",
)]
DEFAULT_URL = "http://127.0.0.1:8080"


def serve_command(data_dir: Path, workers: int) -> str:
    """Return the shell command that serves a data directory."""
    how = f" --workers {workers}" if workers > 1 else ""
    return f"noria serve --data-dir {shlex.quote(str(data_dir))}{how}"
