"""The address of a followed database, with its login: mysql://user[:password]@host[:port]/database."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

PASSWORD = "NORIA_SOURCE_PASSWORD"  # used if the address has none: the process list would show it
CONNECT_S, ANSWER_S = 10, 600


class CannotFollow(ValueError):
    """Something cannot be followed.  The message says what, where, and what to do."""


@dataclass(frozen=True)
class SourceAddress:
    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)

    @classmethod
    def of(cls, text: str) -> SourceAddress:
        """
        >>> SourceAddress.of("mysql://app@db.example/shop").source
        'mysql://db.example:3306/shop'
        """
        parts = urlsplit(text)
        database = unquote(parts.path.lstrip("/"))
        if parts.scheme not in ("mysql", "mariadb") or not parts.hostname or not database or "/" in database:
            raise CannotFollow(f"'{_shown(text)}' is no address of a database: "
                               f"mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE")
        if parts.query or parts.fragment:
            raise CannotFollow(f"the address of a database ends with its name: leave out '?{parts.query}'")
        password = unquote(parts.password) if parts.password is not None else os.environ.get(PASSWORD, "")
        return cls(parts.hostname, parts.port or 3306, database, unquote(parts.username or "root"), password)

    @property
    def source(self) -> str:
        """The address without user and password, for messages and records."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{host}:{self.port}/{self.database}"

    @property
    def name(self) -> str:
        """The name by which the server knows this follower."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]

    def settings(self) -> dict[str, Any]:
        """Return PyMySQL's connection arguments, without the database."""
        return {"host": self.host, "port": self.port, "user": self.user, "password": self.password,
                "connect_timeout": CONNECT_S, "charset": "utf8mb4"}


def _shown(text: str) -> str:
    """Return an address's text without user and password."""
    head, at, tail = text.rpartition("@")
    scheme, slashes, _ = head.partition("//")
    return f"{scheme}{slashes}…@{tail}"[:200] if at else text[:200]
