"""Where a lease is, as `--lease` names it; apart from `zookeeper`, whose client is an extra of the installation."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ADDRESS = re.compile(r"zk://([\w.:,\[\]-]+)((?:/[\w.-]+)*)/?")


class LeaseUnavailable(Exception):
    """No lease can be had: what was tried, what to do."""


@dataclass(frozen=True)
class Address:
    """hosts: "host:port,host:port"; path: of the node below which the lease is."""

    hosts: str
    path: str

    @staticmethod
    def of(text: str) -> Address:
        """ValueError if it is none."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise ValueError(f"'{text}' is no address of a lease: zk://HOST:PORT[,HOST:PORT…]/PATH")
        return Address(found[1], found[2] or "/noria")
