"""`noria serve`: checks the settings and runs the server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    data_dir: Annotated[Path, typer.Option(
        "--data-dir", help="The directory of the tables; created if missing, rejected if in use.")],
    mysql_port: Annotated[int, typer.Option("--mysql-port", help="0: any free port.")] = 3307,
    http_port: Annotated[int, typer.Option("--http-port", help="0: any free port.")] = 8080,
    mysql_host: Annotated[str, typer.Option(
        "--mysql-host", help="Address to listen on; any but loopback requires a password.")] = "127.0.0.1",
    http_host: Annotated[str, typer.Option("--http-host", help="The same for HTTP.")] = "127.0.0.1",
    master: Annotated[str, typer.Option(
        "--master", help="Spark's master; by default the JVM itself, with slots for the workers and for batch "
                         "jobs.")] = "",
    standby_slots: Annotated[int, typer.Option(
        "--standby-slots", help="Slots of the --master cluster, beside the workers', for processes that replace "
                                "workers of "
                                "a lost host (docs/how-to/cluster.md).")] = 0,
    batch_spark: Annotated[str, typer.Option(
        "--batch-spark", help="When Spark's second driver starts, for loads, exports and queries that no view answers: "
                              "when-needed (the first of them waits some seconds) or at-start (needs some 500 MB "
                              "more).")] = "when-needed",
    workers: Annotated[int, typer.Option("--workers", help="Shards of the data-flow.")] = 1,
    database: Annotated[str, typer.Option(
        "--database", help="The database of clients that name none; made if missing.")] = "noria",
    front_ends: Annotated[int, typer.Option(
        "--front-ends", help="Processes that serve MySQL clients on the one port; with 1 the server itself "
                             "serves them.")] = 1,
    transaction_idle: Annotated[int, typer.Option(
        "--transaction-idle", help="A transaction over HTTP is rolled back if it gets no request for so many "
                                   "seconds.")] = 60,
    memory_limit: Annotated[str, typer.Option(
        "--memory-limit", help="Bound of states, views, strings, RocksDB's cache and kept replies: 512M, 2G; 0: none. "
                               "The least recently read keys are evicted first.")] = "1G",
    user: Annotated[str, typer.Option("--user", help="The user that may connect.")] = "root",
    password_file: Annotated[Path | None, typer.Option(
        "--password-file", help="A file (mode 600) whose first line is the password.")] = None,
    http_name: Annotated[list[str] | None, typer.Option(
        "--http-name", help="A further host name of this server in HTTP requests. Requests for other names are "
                            "rejected, "
                            "which stops DNS rebinding by web pages. Repeatable.")] = None,
    load_dir: Annotated[list[Path] | None, typer.Option(
        "--load-dir", help="A directory below which POST /load may read files and write rejects, with or without a "
                           "password. Repeatable; by default none. `noria load` on this host, as this user, may use "
                           "any file.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(
        "--tls-cert", help="A certificate with its chain (PEM): both ports then accept TLS, too. Read again on SIGHUP.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM, mode 600), without a "
                                                                   "passphrase.")] = None,
    tls_require: Annotated[bool, typer.Option(
        "--tls-require", help="Reject MySQL logins and HTTP requests without TLS.")] = False,
    cluster_host: Annotated[str, typer.Option(
        "--cluster-host", help="The address at which workers on other hosts reach this one "
                               "(docs/how-to/cluster.md); by "
                               "default all workers run on this host.")] = "",
    cluster_port: Annotated[int, typer.Option("--cluster-port", help="0: any free port.")] = 0,
    cluster_cert: Annotated[Path | None, typer.Option(
        "--cluster-cert", help="A certificate (PEM) that every host has at this path. Connections between hosts "
                               "then use "
                               "TLS, and peers with another certificate are rejected.")] = None,
    cluster_key: Annotated[Path | None, typer.Option(
        "--cluster-key", help="Its key (PEM, mode 600), without a passphrase, on every host.")] = None,
    lease: Annotated[str, typer.Option(
        "--lease", help="zk://HOST:PORT[,HOST:PORT…]/PATH: ZooKeeper decides which of several servers of this data "
                        "directory leads. The others wait, and one replaces a leader that fails.")] = "",
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve a database over the MySQL protocol and HTTP until SIGTERM.

    Once it accepts clients it prints one line: noria ready mysql=HOST:PORT http=HOST:PORT. If views are still being
    filled, the line ends with filling=VIEW:PERCENT:SECONDS,...; /health reports the progress.
    """
    from noria.spark.hosting import early

    early.begin()  # the driver imports its modules while this process imports the server's
    from noria.kernels import making
    from noria.server.listening import CannotListen, check
    from noria.server.node import serve
    from noria.server.settings import Settings, SettingsError, parse_size, read_password

    try:
        settings = Settings(
            data_dir=data_dir.absolute(), mysql_host=mysql_host, mysql_port=mysql_port, http_host=http_host,
            http_port=http_port, master=master, standby_slots=standby_slots, batch_spark=batch_spark, workers=workers,
            front_ends=front_ends, transaction_idle_s=transaction_idle, database=database,
            memory_bytes=parse_size(memory_limit), user=user,
            password=None if password_file is None else read_password(password_file), http_names=tuple(http_name or ()),
            load_dirs=tuple(d.absolute() for d in load_dir or ()), tls_cert=tls_cert, tls_key=tls_key,
            tls_require=tls_require, cluster_host=cluster_host, cluster_port=cluster_port,
            cluster_cert=cluster_cert and cluster_cert.absolute(), cluster_key=cluster_key and cluster_key.absolute(),
            lease=lease)
        if not lease:  # a standby server listens only once it leads
            check(mysql_host, mysql_port, "--mysql-host, --mysql-port")
            check(http_host, http_port, "--http-host, --http-port")
    except (SettingsError, CannotListen) as e:
        sys.exit(f"noria serve: {e}")
    making.ensure_shown()
    sys.exit(serve(settings, log_level))
