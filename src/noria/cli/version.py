"""`noria version`: prints versions."""

from __future__ import annotations

import typer


def command() -> None:
    """Print the versions of Noria, Python and its main packages."""
    import platform
    from importlib.metadata import version

    from noria import __version__

    typer.echo(f"noria {__version__}")
    typer.echo(f"python {platform.python_version()}")
    for package in ("pyspark", "pyarrow", "numba", "rocksdict"):
        typer.echo(f"{package} {version(package)}")
