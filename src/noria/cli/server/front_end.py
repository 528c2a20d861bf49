"""`noria front-end`: serves MySQL clients on another host than the server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    controller: Annotated[str, typer.Option(
        "--controller", help="HOST:PORT, the --cluster-host and --cluster-port of the server.")],
    secret_file: Annotated[Path, typer.Option(
        "--secret-file", help="A copy of workers.secret of the server's data directory (mode 600).")],
    mysql_port: Annotated[int, typer.Option("--mysql-port", help="0: any free port.")] = 3307,
    mysql_host: Annotated[str, typer.Option(
        "--mysql-host", help="Address to listen on; any but loopback requires a server with a password.")
    ] = "127.0.0.1",
    cluster_cert: Annotated[Path | None, typer.Option(
        "--cluster-cert", help="The certificate (PEM) that the server has as its --cluster-cert.")] = None,
    cluster_key: Annotated[Path | None, typer.Option("--cluster-key", help="Its key (PEM, mode 600).")] = None,
    tls_cert: Annotated[Path | None, typer.Option(
        "--tls-cert", help="A certificate with its chain (PEM), for MySQL clients. Read again on SIGHUP.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM, mode 600), without a "
                                                                   "passphrase.")] = None,
    tls_require: Annotated[bool, typer.Option("--tls-require", help="Reject MySQL logins without TLS.")] = False,
    tls_ca: Annotated[Path | None, typer.Option(
        "--tls-ca", help="Authorities (PEM): with --tls-require, MySQL clients without a certificate that one of them "
                         "has signed are rejected. Read again on SIGHUP.")] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve MySQL clients on this host, for a server on another one (docs/how-to/cluster.md), until SIGTERM.

    Users and passwords are the server's. Once it accepts clients it prints: noria front-end ready mysql=HOST:PORT
    """
    from noria.runtime.transport import handshake
    from noria.runtime.transport.handshake import NotAuthenticated, SharedCredentials
    from noria.server.fronts.far import FarSettings, serve
    from noria.server.settings import SettingsError

    host, colon, port = controller.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        sys.exit(f"noria front-end: --controller {controller} is not HOST:PORT")
    if (cluster_cert is None) != (cluster_key is None):
        sys.exit("noria front-end: --cluster-cert FILE and --cluster-key FILE belong together: one is missing")
    try:
        credentials = SharedCredentials(handshake.secret_in(secret_file), cluster_cert, cluster_key)
        handshake.tls(credentials, server=False)
        settings = FarSettings((host.strip("[]"), int(port)), credentials, mysql_host, mysql_port, tls_cert, tls_key,
                               tls_require, tls_ca)
    except (SettingsError, NotAuthenticated, OSError) as e:
        sys.exit(f"noria front-end: {e}")
    sys.exit(serve(settings, log_level))
