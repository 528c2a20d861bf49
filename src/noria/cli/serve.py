"""`noria serve`: the server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    data_dir: Annotated[Path, typer.Option(
        "--data-dir", help="Where the tables live; created if missing, refused if in use.")],
    mysql_port: Annotated[int, typer.Option("--mysql-port", help="0: any free port.")] = 3307,
    http_port: Annotated[int, typer.Option("--http-port", help="0: any free port.")] = 8080,
    mysql_host: Annotated[str, typer.Option(
        "--mysql-host", help="Address to listen on; other than loopback wants a password.")] = "127.0.0.1",
    http_host: Annotated[str, typer.Option("--http-host", help="Likewise, for HTTP.")] = "127.0.0.1",
    master: Annotated[str, typer.Option(
        "--master", help="Spark's master; by default slots in the JVM for the workers and for batch jobs.")] = "",
    workers: Annotated[int, typer.Option("--workers", help="Shards of the data-flow.")] = 1,
    memory_limit: Annotated[str, typer.Option(
        "--memory-limit", help="Bound of states, views, strings, RocksDB's cache and kept replies: 512M, 2G; 0: none. "
                               "Least recently read keys go first.")] = "1G",
    user: Annotated[str, typer.Option("--user", help="The user that may connect.")] = "root",
    password_file: Annotated[Path | None, typer.Option(
        "--password-file", help="A file (mode 600) whose first line is the password.")] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve a database over the MySQL protocol and HTTP until SIGTERM.

    When it serves it prints one line: noria ready mysql=HOST:PORT http=HOST:PORT
    """
    from noria.server.node import serve
    from noria.server.settings import Settings, SettingsError, parse_size, read_password

    try:
        settings = Settings(
            data_dir=data_dir.absolute(), mysql_host=mysql_host, mysql_port=mysql_port, http_host=http_host,
            http_port=http_port, master=master, workers=workers, memory_bytes=parse_size(memory_limit), user=user,
            password=None if password_file is None else read_password(password_file))
    except SettingsError as e:
        sys.exit(f"noria serve: {e}")
    sys.exit(serve(settings, log_level))
