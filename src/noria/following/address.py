"""Where a followed database is, and as whom to ask it: mysql://user[:password]@host[:port]/database."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

PASSWORD = "NORIA_SOURCE_PASSWORD"  # where the address has none: it would be in the process list
CONNECT_S, ANSWER_S = 10, 600


class Refused(ValueError):
    """What cannot be followed: what, where, and what to do."""


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)

    @classmethod
    def of(cls, text: str) -> Address:
        """
        >>> Address.of("mysql://app@db.example/shop").source
        'mysql://db.example:3306/shop'
        """
        parts = urlsplit(text)
        database = unquote(parts.path.lstrip("/"))
        if parts.scheme not in ("mysql", "mariadb") or not parts.hostname or not database or "/" in database:
            raise Refused(f"'{_shown(text)}' is no address of a database: mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE")
        if parts.query or parts.fragment:
            raise Refused(f"the address of a database ends with its name: leave out '?{parts.query}'")
        password = unquote(parts.password) if parts.password is not None else os.environ.get(PASSWORD, "")
        return cls(parts.hostname, parts.port or 3306, database, unquote(parts.username or "root"), password)

    @property
    def source(self) -> str:
        """What it is called where others read it: without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{host}:{self.port}/{self.database}"

    @property
    def name(self) -> str:
        """Under which the server knows who follows it."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]

    def settings(self) -> dict[str, Any]:
        """For PyMySQL."""
        return {"host": self.host, "port": self.port, "user": self.user, "password": self.password,
                "connect_timeout": CONNECT_S, "charset": "utf8mb4"}


def _shown(text: str) -> str:
    """Without a password."""
    head, at, tail = text.rpartition("@")
    scheme, slashes, _ = head.partition("//")
    return f"{scheme}{slashes}…@{tail}"[:200] if at else text[:200]
