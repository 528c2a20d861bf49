"""Names of accounts, 'user'@'host', and which host pattern matches a client's address.

Keeps true: no name is looked up in DNS.  A client of a loopback address is also at `localhost`, as in MySQL.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import WRONG_STRING_LENGTH

ANY_HOST = "%"
LOCALHOST = "localhost"
USER_CHARACTERS, HOST_CHARACTERS = 32, 255
_PATTERN = re.compile(r"[0-9a-f.:%_]+\Z")


@dataclass(frozen=True, order=True)
class AccountName:
    """An account or a role.  user: exact; "" matches every user.  host: in lower case."""

    user: str
    host: str = ANY_HOST

    def __str__(self) -> str:
        """As errors show it."""
        return f"'{self.user}'@'{self.host}'"

    @property
    def quoted(self) -> str:
        """As SHOW GRANTS shows it."""
        return f"{_quoted(self.user)}@{_quoted(self.host)}"

    @property
    def plain(self) -> str:
        """As CURRENT_USER() shows it."""
        return f"{self.user}@{self.host}"

    @staticmethod
    def of(plain: str) -> AccountName:
        """The name that `plain` shows."""
        user, _, host = plain.rpartition("@")
        return AccountName(user, host)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def checked(name: AccountName) -> AccountName:
    """Return the name of a new account or role.  Raises SqlError if it is too long, or a host that never matches."""
    for text, most, what in ((name.user, USER_CHARACTERS, "user name"), (name.host, HOST_CHARACTERS, "host name")):
        if len(text) > most:
            raise SqlError(*WRONG_STRING_LENGTH,
                           f"String '{text[:70]}' is too long for {what} (should be no longer than {most})")
    host = name.host
    if host not in ("", LOCALHOST) and _network(host) is None and not _PATTERN.match(host):
        raise not_supported(f"the host name '{host}' of an account", "names are not looked up in DNS: write an address "
                            "such as '192.0.2.7', a pattern '192.0.2.%', a network '192.0.2.0/24', 'localhost' or '%'")
    return name


@lru_cache(1024)
def _network(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The network that a host with a netmask names: 192.0.2.0/24 or 192.0.2.0/255.255.255.0."""
    if "/" not in host:
        return None
    try:
        return ipaddress.ip_network(host, strict=False)
    except ValueError:
        return None


def matches(pattern: str, address: str) -> bool:
    """Whether a client at this address is at the host of an account.

    >>> [matches(p, "192.0.2.7") for p in ("192.0.2.7", "192.0.2.%", "192.0.2.0/24", "localhost", "%")]
    [True, True, True, False, True]
    >>> matches("localhost", "127.0.0.1"), matches("192.0.2._", "192.0.2.77")
    (True, False)
    """
    names = hosts_of(address)
    network = _network(pattern)
    if network is not None:
        return any(_within(name, network) for name in names)
    return pattern in ("", ANY_HOST) or any(like(pattern, name) for name in names)


@lru_cache(1024)
def hosts_of(address: str) -> tuple[str, ...]:
    """The names under which accounts know a client's address.

    >>> hosts_of("::ffff:192.0.2.7"), hosts_of("::1")
    (('192.0.2.7',), ('::1', 'localhost'))
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return (address.lower(),)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return (str(ip), LOCALHOST) if ip.is_loopback else (str(ip),)


def _within(name: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    try:
        return ipaddress.ip_address(name) in network
    except ValueError:
        return False


@lru_cache(4096)
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return re.compile("".join({"%": ".*", "_": "."}.get(p, re.escape(p[-1])) for p in parts), re.DOTALL)


def like(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern with % and _, which a backslash makes plain."""
    return _regex(pattern).fullmatch(name) is not None


def covers(pattern: str, other: str) -> bool:
    r"""Whether a pattern matches every name that the other pattern matches.

    >>> covers("s%", "s_"), covers("s_", "s%"), covers("s_", r"s\_"), covers(r"s\_", "s_")
    (True, False, True, False)
    """
    names = "".join(_SIGNS.get(p, p[-1]) for p in re.findall(r"\\.|.", other, re.DOTALL))
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    regex = "".join({"%": ".*", "_": f"[^{_SIGNS['%']}]"}.get(p, re.escape(p[-1])) for p in parts)
    return re.fullmatch(regex, names, re.DOTALL) is not None


_SIGNS = {"%": "\ud800", "_": "\ud801"}  # stand for the wildcards of a pattern that is compared; no text has them


def specificity(name: AccountName) -> tuple[int, int, bool]:
    """The order in which accounts are tried: hosts without a wildcard, networks, patterns by the place of their first
    wildcard, '%', ''.  For equal hosts, named users precede ''.

    >>> hosts = ["%", "10.%", "10.0.0.0/8", "10.0.%", "10.0.0.1", ""]
    >>> sorted(hosts, key=lambda h: specificity(AccountName("u", h)))
    ['10.0.0.1', '10.0.0.0/8', '10.0.%', '10.%', '%', '']
    """
    host = name.host
    wild = min((host.find(c) for c in "%_" if c in host), default=-1)
    network = _network(host)
    if host in ("", ANY_HOST):
        rank, first = (4, 0) if not host else (3, 0)
    elif network is not None:
        rank, first = 1, -network.prefixlen
    else:
        rank, first = (0, 0) if wild < 0 else (2, -wild)
    return rank, first, not name.user


__all__ = ["ANY_HOST", "LOCALHOST", "AccountName", "checked", "covers", "hosts_of", "like", "matches", "specificity"]
