"""Guards logins: slows wrong passwords, blocks addresses whose connections break off, logs and counts both.

A user at an address may send `LOGIN_BURST` wrong passwords at once, then one each `LOGIN_AGAIN_S` seconds.  Further
logins of this user from this address wait for their turn, before their password is checked.  A login that would wait
longer than `LOGIN_WAIT_S` is rejected unchecked.  Other users and other addresses do not wait.

As in MySQL, `max_connect_errors` limits the connections in a row that end before the client has logged in or sent a
wrong password.  An address that reaches the number gets error 1129 until FLUSH HOSTS.  Loopback addresses are exempt.

Keeps true: a right password costs no turn.  The tables are bounded.  The log has no password, and a bounded number of
lines per minute.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from noria.core import limits
from noria.core.errors import SqlError
from noria.core.errors.codes import ACCESS_DENIED, HOST_IS_BLOCKED
from noria.core.limits import LOGIN_AGAIN_S, LOGIN_BURST, LOGIN_LOG_S, LOGIN_WAIT_S

log = logging.getLogger("noria.logins")
Pair = tuple[str, str]  # an address and a user's name


class TooManyLogins(SqlError):
    """The login was rejected without a check.  again_s: seconds until the client should try again."""

    def __init__(self, pair: Pair, again_s: float):
        address, user = pair
        self.again_s = max(1, round(again_s))
        super().__init__(*ACCESS_DENIED, f"Access denied for user '{user}'@'{address}': too many wrong passwords of "
                                         f"this user from this address; the password was not checked; try again in "
                                         f"{self.again_s} s")


@dataclass(frozen=True)
class Attempt:
    """One password to check.  wait_s: the caller must wait so long first; 0 if no turn was reserved."""

    guard: LoginGuard
    pair: Pair
    wait_s: float

    def passed(self) -> None:
        """Release the turn: the password is right, or the client has not sent it yet."""
        if self.wait_s:
            self.guard.refund(self.pair)

    def failed(self, protocol: str, used_password: bool) -> None:
        """Count and log a wrong password, which uses up the turn."""
        if not self.wait_s:
            self.guard.charge(self.pair)
        self.guard.refused(self.pair, f"over {protocol}, using password: {'YES' if used_password else 'NO'}")


class LoginGuard:
    """The guard of one process (see the module).  clock: returns seconds.  sleep: waits before a check.

    on_change: called after a change of `max_connect_errors` (False) or FLUSH HOSTS (True), to inform other processes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.sleep, self._clock = sleep, clock
        self.max_connect_errors = limits.MAX_CONNECT_ERRORS
        self.on_change: Callable[[bool], None] = lambda flushed: None
        self._full_at: OrderedDict[Pair, float] = OrderedDict()  # the time at which all turns are free again
        self._errors: OrderedDict[str, int] = OrderedDict()  # by address: broken connections in a row
        self._log = _Log(clock)
        self.numbers = dict.fromkeys(("login_failures_total", "login_waits_total", "blocked_connections_total"), 0)

    # ------------------------------------------------------------ passwords
    def attempt(self, address: str, user: str) -> Attempt:
        """Reserve a turn if the pair must wait.  Raises TooManyLogins if the wait would exceed LOGIN_WAIT_S."""
        pair = address, user[:limits.MAX_NAME_CHARS]
        wait_s = self._full_at.get(pair, 0.0) - self._clock() - (LOGIN_BURST - 1) * LOGIN_AGAIN_S
        if wait_s <= 0:
            return Attempt(self, pair, 0.0)
        self.numbers["login_waits_total"] += 1
        if wait_s > LOGIN_WAIT_S:
            self._log.refused(pair, "not checked, after too many wrong passwords")
            raise TooManyLogins(pair, wait_s)
        self.charge(pair)
        return Attempt(self, pair, wait_s)

    def charge(self, pair: Pair) -> None:
        self._full_at[pair] = max(self._full_at.get(pair, 0.0), self._clock()) + LOGIN_AGAIN_S
        self._full_at.move_to_end(pair)
        if len(self._full_at) > limits.LOGIN_PAIRS:
            self._full_at.popitem(last=False)

    def refund(self, pair: Pair) -> None:
        if pair in self._full_at:
            self._full_at[pair] -= LOGIN_AGAIN_S

    def refused(self, pair: Pair, how: str) -> None:
        self.numbers["login_failures_total"] += 1
        self._log.refused(pair, how)

    # ------------------------------------------------------------ addresses
    def check_host(self, address: str) -> None:
        """Raise SqlError 1129 for a blocked address."""
        if self._errors.get(address, 0) >= self.max_connect_errors:
            self.numbers["blocked_connections_total"] += 1
            raise SqlError(*HOST_IS_BLOCKED, f"Host '{address}' is blocked because of many connection errors; unblock "
                                             "with FLUSH HOSTS from another host, or with 'mysqladmin flush-hosts'")

    def interrupted(self, address: str) -> None:
        """Count a connection that ended before its client had logged in or been refused."""
        if _is_loopback(address):
            return
        errors = self._errors[address] = self._errors.get(address, 0) + 1
        self._errors.move_to_end(address)
        if len(self._errors) > limits.LOGIN_HOSTS:
            self._errors.popitem(last=False)
        if errors == self.max_connect_errors:
            log.warning("address %s is blocked: %d connections in a row ended before they logged in "
                        "(max_connect_errors); FLUSH HOSTS unblocks it", address, errors)

    def connected(self, address: str) -> None:
        self._errors.pop(address, None)

    def flush_hosts(self) -> None:
        self._errors.clear()
        self.on_change(True)

    def set_most_errors(self, number: int) -> None:
        self.max_connect_errors = number
        self.on_change(False)

    def variables(self) -> Mapping[str, int]:
        """Return the system variables that all sessions share."""
        return {"max_connect_errors": self.max_connect_errors}

    # ------------------------------------------------------------ numbers of several processes
    def taken(self) -> dict[str, int]:
        """Return the counts since the last call, for a report to another process."""
        numbers, self.numbers = self.numbers, dict.fromkeys(self.numbers, 0)
        return numbers

    def add(self, numbers: Mapping[str, int]) -> None:
        """Add the counts of another process."""
        for name, number in numbers.items():
            self.numbers[name] += number


class _Log:
    """Logs at most one line for each pair, and `LOGIN_LOG_LINES` in all, in each period of `LOGIN_LOG_S` seconds."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._began = float("-inf")
        self._logged: set[Pair] = set()
        self._left_out = 0

    def refused(self, pair: Pair, how: str) -> None:
        left_out = 0
        if self._clock() - self._began >= LOGIN_LOG_S:
            left_out, self._left_out = self._left_out, 0
            self._began, self._logged = self._clock(), set()
        if pair in self._logged or len(self._logged) >= limits.LOGIN_LOG_LINES:
            self._left_out += 1
            return
        self._logged.add(pair)
        more = f"; {left_out} more were refused before and not logged" if left_out else ""
        log.warning("login refused: user %r from %s (%s)%s", pair[1], pair[0], how, more)


def _is_loopback(address: str) -> bool:
    """True for a loopback address, and for a client of a Unix socket.

    >>> _is_loopback("127.0.0.1"), _is_loopback("::ffff:127.0.0.1"), _is_loopback("localhost"), _is_loopback("10.0.0.1")
    (True, True, True, False)
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True  # a Unix socket
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


__all__ = ["Attempt", "LoginGuard", "TooManyLogins"]
