"""`noria follow`: tables that are those of a running MySQL or MariaDB."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from noria.cli.options import DEFAULT_URL, Url


def command(
    source: Annotated[str, typer.Argument(
        help="The database: mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE. Without a password there, that of the "
             "variable NORIA_SOURCE_PASSWORD.")],
    tables: Annotated[str, typer.Option(
        "--tables", help="Follow these tables, a,b; by default all of the database, and those that it gets.")] = "",
    server_id: Annotated[int, typer.Option(
        "--server-id", min=0, max=2**32 - 1,
        help="The number of this replica, other than that of the source and of any other replica; 0: one is "
             "made.")] = 0,
    master: Annotated[str, typer.Option(
        "--master", help="Spark's master for the first load; by default this machine.")] = "",
    release: Annotated[bool, typer.Option(
        "--release", help="End the following for good: the tables stay, and are written like any.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Follow a running MySQL or MariaDB: its tables are loaded by Spark, and kept as they are there by its row binlog.

    Runs until Ctrl-C; started again it goes on where it was. The tables are read-only meanwhile.
    docs/how-to/beside-mysql.md has the details.
    """
    from noria.cli.interrupts import Interrupted, interruptible
    from noria.control.processes.extras import require

    require("follow", "noria follow", "pymysql", "pymysqlreplication")
    from noria.following.address import Address
    from noria.following.follower import Follower, Wanted
    from noria.following.loading import load_apart
    from noria.following.target import Target

    address = Address.of(source)
    if release:
        Target(url, address.name).release()
        typer.echo(f"nothing here follows {address.source} any more")
        return
    wanted = Wanted(address, url, tuple(dict.fromkeys(t.strip() for t in tables.split(",") if t.strip())), server_id)
    try:
        with interruptible():
            Follower(wanted, partial(load_apart, master=master), partial(print, flush=True)).run()
    except Interrupted:
        typer.echo("stopped; start it again to go on")
