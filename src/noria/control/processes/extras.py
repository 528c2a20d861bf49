"""Checks for packages that only some commands need: extras of the installation."""

from __future__ import annotations

from importlib import import_module


def require(extra: str, what: str, *packages: str) -> None:
    """Raise a ValueError that names the extra to install, if a package that `what` needs is missing."""
    for package in packages:
        try:
            import_module(package)
        except ModuleNotFoundError as e:
            raise ValueError(f"{what} needs {e.name}, which is not installed: pip install 'noria-spark[{extra}]'"
                             ) from None
