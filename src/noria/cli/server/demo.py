"""`noria demo`: plays the paper's application, from raw files to verified views."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from noria.cli.interrupts import Interrupted, interruptible
from noria.cli.options import serve_command


def command(
    seconds: Annotated[float, typer.Option("--seconds", min=0.5, max=600, help="How long the mix runs.")] = 10,
    stories: Annotated[int, typer.Option("--stories", help="Stories to generate.")] = 40_000,
    users: Annotated[int, typer.Option("--users", help="Users to generate.")] = 9_200,
    votes: Annotated[int, typer.Option("--votes", help="Votes to generate.")] = 2_000_000,
    data_dir: Annotated[Path | None, typer.Option(
        "--data-dir", help="An empty or new directory for all data, which is kept. By default a temporary one, removed "
                           "at the end.")] = None,
    workers: Annotated[int, typer.Option("--workers", help="As for `noria serve`.")] = 1,
    master: Annotated[str, typer.Option("--master", help="As for `noria serve`.")] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary directory.")] = False,
) -> None:
    """Play a news site with 2 million votes.

    A page's query runs on plain tables and by a view, while clients read and vote.  Then memory is reduced, a worker is
    killed, a view is added, and rows stream in.  In the end Spark checks every view.

    Status 0: every view agreed with Spark's recomputation; 1: one did not, or the demo failed.
    """
    from noria.control.processes.extras import require
    from noria.demo.acts import Options, play
    from noria.demo.lobsters import Size
    from noria.demo.screen import Screen
    from noria.demo.server import DemoFailed

    require("demo", "noria demo", "pymysql", "mysql.connector")
    size = Size(stories, users, votes)
    directory = _directory(data_dir)
    server = ("--workers", str(workers), *(("--master", master) if master else ()))
    agreed = False
    try:
        with interruptible():
            agreed = play(Options(size, seconds, directory, server), Screen())
    except DemoFailed as e:
        print(f"noria demo: {e}", file=sys.stderr)
    except Interrupted as e:
        print(f"noria demo: {e}: everything it started has been stopped", file=sys.stderr)
        raise SystemExit(128 + e.number) from None
    finally:
        if data_dir is None and not keep:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            print(f"   the data is in {directory}: {serve_command(directory / 'data', workers)}")
    raise typer.Exit(0 if agreed else 1)


def _directory(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="noria-demo-"))
    if directory.exists() and any(directory.iterdir()):
        raise ValueError(f"--data-dir {directory} is not empty: the demo starts with an empty one")
    return directory.absolute()
