"""The file `accounts.json` of a data directory: all accounts, as `Accounts.as_json` writes them.

Keeps true: only the server's user may read it.  A change is on disk, complete, before it is acknowledged: the file is
written beside the old one, synced, and renamed over it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from noria.accounts.registry import FILE, Accounts, UnknownFormat


class AccountStore:
    """The file in this data directory."""

    def __init__(self, data_dir: Path):
        self.path = data_dir / FILE

    def read(self) -> Accounts:
        """Return the accounts; none if there is no file.  Raises UnknownFormat, also for a damaged file."""
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return Accounts()
        try:
            return Accounts.of_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as e:
            raise UnknownFormat(f"{self.path} is damaged: {type(e).__name__}; restore it from a backup") from None

    def write(self, accounts: Accounts) -> None:
        beside = self.path.with_suffix(".new")
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(file, json.dumps(accounts.as_json(), indent=1).encode())
            os.fsync(file)
        finally:
            os.close(file)
        beside.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


__all__ = ["AccountStore"]
