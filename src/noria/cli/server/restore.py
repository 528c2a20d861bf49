"""`noria restore`: makes a data directory from a backup."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from noria.cli.options import serve_command


def command(
    source: Annotated[Path, typer.Argument(help="The directory that `noria backup` made.")],
    data_dir: Annotated[Path, typer.Argument(help="The new data directory; it must be absent or empty.")],
) -> None:
    """Make a data directory from a backup, after checking every byte of it.

    A backup contains the definitions of views, not their rows: the server fills them again.
    """
    from noria.cli.progress import copying
    from noria.storage.offline import backup
    from noria.storage.rocks.errors import StoreError

    try:
        backup.read(source)
        with copying("checking and copying") as progress:
            about = backup.restore(source, data_dir, progress)
    except StoreError as e:
        sys.exit(f"noria restore: {e}")
    rows = sum(about.tables.values())
    print(f"{data_dir}: {len(about.tables)} tables, {rows:,} rows as of {about.made}; "
          f"{serve_command(data_dir, len(about.shards))}")
