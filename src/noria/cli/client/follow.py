"""`noria follow`: copies the tables of a running MySQL or MariaDB, and keeps them up to date."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from noria.cli.options import DEFAULT_URL, Url


def command(
    source: Annotated[str, typer.Argument(
        help="The database: mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE. By default the password is in the "
             "variable NORIA_SOURCE_PASSWORD.")],
    tables: Annotated[str, typer.Option(
        "--tables", help="Follow these tables, a,b; by default all tables of the database, also later ones.")] = "",
    server_id: Annotated[int, typer.Option(
        "--server-id", min=0, max=2**32 - 1,
        help="The number of this replica, different from those of the source and its other replicas; 0: chosen "
             "by Noria.")] = 0,
    master: Annotated[str, typer.Option(
        "--master", help="Spark's master for the first load; by default this machine.")] = "",
    release: Annotated[bool, typer.Option(
        "--release", help="Stop following for good: the tables stay, and can be written.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Follow a running MySQL or MariaDB: Spark loads its tables, and its row binlog keeps them up to date.

    The command runs until Ctrl-C; started again, it continues where it stopped. Meanwhile the tables are read-only.
    docs/how-to/beside-mysql.md has the details.
    """
    from noria.cli.interrupts import Interrupted, interruptible
    from noria.control.processes.extras import require

    require("follow", "noria follow", "pymysql", "pymysqlreplication")
    from noria.following.address import SourceAddress
    from noria.following.follower import Follower, FollowOptions
    from noria.following.loading import load_apart
    from noria.following.target import TargetServer

    address = SourceAddress.of(source)
    if release:
        TargetServer(url, address.name).release()
        typer.echo(f"nothing here follows {address.source} any more")
        return
    wanted = FollowOptions(address, url, tuple(dict.fromkeys(t.strip() for t in tables.split(",") if t.strip())),
                           server_id)
    try:
        with interruptible():
            Follower(wanted, partial(load_apart, master=master), partial(print, flush=True)).run()
    except Interrupted:
        typer.echo("stopped; start it again to go on")
