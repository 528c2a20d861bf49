"""`noria serve`: checks the settings and runs the server.  `Settings` declares the options."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, Any

import typer

from noria.server.options import REQUIRED, DeclaredOption, options, settings_from
from noria.server.settings import Settings, SettingsError

OPTIONS = options(Settings)


def command(**written: Any) -> None:
    """Serve a database over the MySQL protocol and HTTP until SIGTERM.

    Once it accepts clients it prints one line: noria ready mysql=HOST:PORT http=HOST:PORT. If views are still being
    filled, the line ends with filling=VIEW:PERCENT:SECONDS,...; /health reports the progress.
    """
    from noria.spark.hosting import early

    early.begin()  # the driver imports its modules while this process imports the server's
    from noria.kernels import making
    from noria.server.listening import CannotListen, check
    from noria.server.node import serve

    try:
        settings = settings_from(Settings, OPTIONS, written)
        if not settings.lease:  # a standby server listens only once it leads
            check(settings.mysql_host, settings.mysql_port, "--mysql-host, --mysql-port")
            check(settings.http_host, settings.http_port, "--http-host, --http-port")
    except (SettingsError, CannotListen) as e:
        sys.exit(f"noria serve: {e}")
    making.ensure_shown()
    sys.exit(serve(settings))


def _parameter(option: DeclaredOption) -> inspect.Parameter:
    """Return an option as the parameter that Typer reads."""
    return inspect.Parameter(
        option.field, inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if option.default is REQUIRED else option.default,
        annotation=Annotated[option.written, typer.Option(option.name, help=option.help)])


_PARAMETERS = [_parameter(o) for o in OPTIONS]
vars(command)["__signature__"] = inspect.Signature(_PARAMETERS)
command.__annotations__ = {p.name: p.annotation for p in _PARAMETERS}
