"""Packages that only some commands need: extras of the installation."""

from __future__ import annotations

from importlib import import_module


def require(extra: str, what: str, *packages: str) -> None:
    """ValueError that names what to install, if one of the packages that `what` needs is not installed."""
    for package in packages:
        try:
            import_module(package)
        except ModuleNotFoundError as e:
            raise ValueError(f"{what} needs {e.name}, which is not installed: pip install 'noria-spark[{extra}]'"
                             ) from None
