"""Parses the address of a lease as `--lease` has it; apart from `zookeeper`, whose client is an extra."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ADDRESS = re.compile(r"zk://([\w.:,\[\]-]+)((?:/[\w.-]+)*)/?")


class LeaseUnavailable(Exception):
    """No lease can be obtained; the message has what was tried and a remedy."""


@dataclass(frozen=True)
class LeaseAddress:
    """hosts: "host:port,host:port"; path: that of the node below which the lease is."""

    hosts: str
    path: str

    @staticmethod
    def of(text: str) -> LeaseAddress:
        """Parse an address.  Raises ValueError if it is none."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise ValueError(f"'{text}' is no address of a lease: zk://HOST:PORT[,HOST:PORT…]/PATH")
        return LeaseAddress(found[1], found[2] or "/noria")
