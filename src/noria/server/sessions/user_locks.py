"""GET_LOCK and its family: locks with names that programs choose, of sessions.

    GET_LOCK ──► free: 1 at once │ its own: 1, counted │ another's: waits for RELEASE_LOCK, the end of the session, time
             ──► the wait closes a cycle, also through waits for other locks: error 3058

Keeps true: one session holds a lock at a time; those that wait are served in their order.  Sessions of all front ends
share the table.  A transaction's end releases no lock; the session's end releases all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, NamedTuple

from noria.core.errors import SqlError
from noria.core.errors.codes import (
    USER_LOCK_DEADLOCK,
    USER_LOCK_OVERLONG_NAME,
    USER_LOCK_WRONG_NAME,
    WRONG_ARGUMENTS,
)
from noria.core.limits import MAX_LOCK_NAME_CHARS
from noria.dataflow.transactions.locks import LockTable, Owner, Resource
from noria.dataflow.transactions.wait_graph import Weight
from noria.runtime.transactions.deadlock_watch import Deadlocks
from noria.server.sessions.inspect.inspection import SessionFacts, select_items
from noria.sql.commands import OutputColumn, SelectItems
from noria.sql.statements.without_from import WAITING_FUNCTIONS

MOST_S = 2**31 - 1  # a longer or negative timeout has no end


class _Waiting(NamedTuple):
    name: str
    granted: asyncio.Future[None]


class UserLocks:
    """The locks of all sessions.  An owner is the number of a session's connection.  deadlocks: knows who waits for
    locks of other kinds."""

    def __init__(self, deadlocks: Deadlocks) -> None:
        self._table, self._deadlocks = LockTable(), deadlocks
        self._counts: dict[Owner, dict[str, int]] = {}  # how often an owner has got each of its locks
        self._holders: dict[str, Owner] = {}
        self._waiting: dict[Owner, _Waiting] = {}

    def held(self, owner: Owner) -> int:
        """The number of locks that the owner holds."""
        return len(self._counts.get(owner, ()))

    async def get(self, owner: Owner, name: str, timeout_s: int | None) -> bool:
        """Get a lock; wait for it so long, None: without end.  False: in vain.  Raises SqlError 3058."""
        mine = self._counts.get(owner, {})
        if name in mine:
            mine[name] += 1
            return True
        resource = _resource(name)
        if self._table.acquire(owner, [resource]) is None:
            self._own(owner, name)
            return True
        if timeout_s == 0:
            return False
        if self._table.wait(owner, resource):
            raise _deadlock()
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[owner] = _Waiting(name, granted)
        try:
            with self._deadlocks.waiting(owner, Weight.USER_LOCK, lambda: self._table.blockers(owner)) as stop:
                await asyncio.wait((granted, stop), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if stop.done() and not granted.done():
                raise _deadlock()
            return granted.done()
        except asyncio.CancelledError:  # killed; the lock may have been granted in this moment
            if granted.done():
                self.release(owner, name)
            raise
        finally:
            if not granted.done() and self._waiting.pop(owner, None) is not None:
                self._grant(self._table.withdraw(owner))

    def release(self, owner: Owner, name: str) -> bool | None:
        """Release a lock once.  False: another one's.  None: nobody's."""
        holder = self._holders.get(name)
        if holder != owner:
            return None if holder is None else False
        mine = self._counts[owner]
        mine[name] -= 1
        if not mine[name]:
            del mine[name], self._holders[name]
            if not mine:
                del self._counts[owner]
            self._grant(self._table.free(owner, _resource(name)))
        return True

    def release_all(self, owner: Owner) -> int:
        """Release all locks of the owner, and withdraw its request.  Return how often it had got them."""
        mine = self._counts.pop(owner, {})
        for name in mine:
            del self._holders[name]
        self._waiting.pop(owner, None)
        self._grant(self._table.release(owner))
        return sum(mine.values())

    def holder(self, name: str) -> Owner | None:
        return self._holders.get(name)

    def _own(self, owner: Owner, name: str) -> None:
        self._counts.setdefault(owner, {})[name] = 1
        self._holders[name] = owner

    def _grant(self, owners: Sequence[Owner]) -> None:
        """Let these owners have what they waited for."""
        for owner in owners:
            name, granted = self._waiting.pop(owner)
            self._own(owner, name)
            granted.set_result(None)

    # ------------------------------------------------------------ the functions
    async def evaluated(self, command: SelectItems, about: SessionFacts, set_state: Callable[[str], None]
                        ) -> SelectItems:
        """Replace the functions about locks, and SLEEP, by their values, one after the other.  set_state: sets the
        state in SHOW PROCESSLIST."""
        if not any(i.kind == "function" and i.name in WAITING_FUNCTIONS for i in command.items):
            return command
        items: list[OutputColumn] = []
        for item in command.items:
            if item.kind == "function" and item.name in WAITING_FUNCTIONS:
                value = None
                if command.limit != 0:
                    arguments = select_items(SelectItems(item.arguments), about).rows[0]
                    set_state("User sleep" if item.name == "SLEEP" else "User lock")
                    value = await self._called(item.name, about.connection_id, arguments)
                    set_state("")
                item = OutputColumn(item.field, value=value)
            items.append(item)
        return replace(command, items=tuple(items))

    async def _called(self, function: str, owner: Owner, arguments: Sequence[Any]) -> int | None:
        if function == "SLEEP":
            await asyncio.sleep(sleep_s(arguments[0]))
            return 0
        if function == "RELEASE_ALL_LOCKS":
            return self.release_all(owner)
        name = lock_name(arguments[0])
        if function == "GET_LOCK":
            return int(await self.get(owner, name, seconds(arguments[1])))
        if function == "RELEASE_LOCK":
            released = self.release(owner, name)
            return None if released is None else int(released)
        holder = self.holder(name)
        if function == "IS_FREE_LOCK":
            return int(holder is None)
        return None if holder is None else int(str(holder))


def _resource(name: str) -> Resource:
    return "user lock", name.encode()


def _deadlock() -> SqlError:
    return SqlError(*USER_LOCK_DEADLOCK, "Deadlock found when trying to get user-level lock; try rolling back "
                                         "transaction/releasing locks and restarting lock acquisition.")


def lock_name(value: Any) -> str:
    """Return the name that a value is for a lock, in lower case.  Raises SqlError 3057 or 4163.

    >>> lock_name("Jobs"), lock_name(5)
    ('jobs', '5')
    """
    text = value.decode(errors="replace") if isinstance(value, bytes) else "NULL" if value is None else str(value)
    if value is None or not text or "\ufffd" in text:
        raise SqlError(*USER_LOCK_WRONG_NAME, f"Incorrect user-level lock name '{text[:192]}'.")
    if len(text) > MAX_LOCK_NAME_CHARS:
        raise SqlError(*USER_LOCK_OVERLONG_NAME, f"The user-level lock name '{text[:192]}' should not exceed "
                                                 f"{MAX_LOCK_NAME_CHARS} characters.")
    return text.lower()


def sleep_s(value: Any) -> float:
    """Return how long SLEEP waits.  Raises SqlError 1210 for NULL and negative numbers, as MySQL 8 in strict mode.

    >>> sleep_s("0.5"), sleep_s(2), sleep_s("soon")
    (0.5, 2.0, 0.0)
    """
    try:
        found = -1.0 if value is None else float(value)
    except ValueError:
        found = 0.0
    if not found >= 0:
        raise SqlError(*WRONG_ARGUMENTS, "Incorrect arguments to sleep.")
    return min(found, float(MOST_S))


def seconds(value: Any) -> int | None:
    """Return how long GET_LOCK waits; None without end.

    >>> seconds(2.5), seconds("1"), seconds(None), seconds("soon"), seconds(-1)
    (3, 1, 0, 0, None)
    """
    try:
        found = int(Decimal(str(value)).to_integral_value(ROUND_HALF_UP))
    except (InvalidOperation, ValueError, OverflowError):
        found = 0
    return found if 0 <= found <= MOST_S else None
