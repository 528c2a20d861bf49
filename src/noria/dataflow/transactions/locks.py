"""The lock table of one worker: shared and exclusive locks on keys, with a queue for each key. Pure.

A *resource* is the key of a row, or an entry of a UNIQUE index: (column family, key). An *owner* is a transaction.
An owner waits for one resource at a time; its statement runs again when that is granted.

Keeps true: two owners hold one resource only if both locks are shared. A request is granted in the order of its
queue, except an owner that already holds the resource shared: it waits in front of the others. So no owner starves.
A wait that would close a cycle of waits is never queued: `wait` returns the cycle instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from noria.core.errors import SqlError
from noria.core.errors.codes import LOCK_DEADLOCK, LOCK_NOWAIT

Owner = Hashable
Resource = tuple[str, bytes]


class Wait(NamedTuple):
    """A request in a queue."""

    owner: Owner
    exclusive: bool


@dataclass
class _Lock:
    """A locked resource. `holders`: by owner, whether exclusively."""

    holders: dict[Owner, bool] = field(default_factory=dict)
    queue: deque[Wait] = field(default_factory=deque)


def cycle_of(owner: Owner, blockers: Callable[[Owner], Iterable[Owner]]) -> tuple[Owner, ...]:
    """A cycle of waits through the owner, which is its first member; empty if there is none. `blockers`: the owners
    for whom an owner waits."""
    path, seen = [(owner, iter(blockers(owner)))], {owner}
    while path:
        following = next(path[-1][1], None)
        if following is None:
            path.pop()
        elif following == owner:
            return tuple(o for o, _ in path)
        elif following not in seen:
            seen.add(following)
            path.append((following, iter(blockers(following))))
    return ()


class LockTable:
    """See the module."""

    def __init__(self) -> None:
        self._locks: dict[Resource, _Lock] = {}
        self._held: dict[Owner, set[Resource]] = {}
        self._waits: dict[Owner, Resource] = {}

    def __bool__(self) -> bool:
        """Whether any resource is locked."""
        return bool(self._locks)

    def __len__(self) -> int:
        """The number of locked resources."""
        return len(self._locks)

    def held(self, owner: Owner) -> int:
        """The number of resources that the owner holds."""
        return len(self._held.get(owner, ()))

    def waiting(self) -> Iterator[tuple[Owner, tuple[Owner, ...]]]:
        """Each owner that waits, with the owners for whom it waits."""
        for owner in self._waits:
            yield owner, tuple(self._blockers(owner))

    def blockers(self, owner: Owner) -> list[Owner]:
        """The owners for whom this one waits; empty if it does not wait."""
        return self._blockers(owner)

    # ---------------------------------------------------------------- requests
    def conflict(self, owner: Owner | None, resources: Iterable[Resource], exclusive: bool = True) -> Resource | None:
        """The first resource that the owner cannot lock now; None if it can lock all. `owner`: None for a statement
        that holds no locks."""
        for resource in resources:
            lock = self._locks.get(resource)
            if lock is not None and not self._may_have(lock, owner, exclusive):
                return resource
        return None

    def acquire(self, owner: Owner, resources: Iterable[Resource], exclusive: bool = True) -> Resource | None:
        """Lock all of the resources, or none and return the first that the owner cannot lock."""
        requested = list(resources)
        if (blocked := self.conflict(owner, requested, exclusive)) is not None:
            return blocked
        mine = self._held.setdefault(owner, set())
        for resource in requested:
            lock = self._locks.setdefault(resource, _Lock())
            lock.holders[owner] = exclusive or lock.holders.get(owner, False)
            mine.add(resource)
        return None

    def wait(self, owner: Owner, resource: Resource, exclusive: bool = True) -> tuple[Owner, ...]:
        """Queue a request for a resource that `acquire` returned. Returns the cycle that it closes, which begins with
        the owner; then the request is not queued. Otherwise the result is empty."""
        if owner in self._waits:
            raise ValueError(f"{owner!r} waits already")
        lock, wait = self._locks[resource], Wait(owner, exclusive)
        if owner in lock.holders:
            lock.queue.appendleft(wait)
        else:
            lock.queue.append(wait)
        self._waits[owner] = resource
        if cycle := self.cycle(owner):
            self._unqueue(owner)
        return cycle

    def withdraw(self, owner: Owner) -> list[Owner]:
        """Withdraw the owner's request. Returns the owners whose requests are granted instead."""
        resource = self._waits.get(owner)
        if resource is None:
            return []
        self._unqueue(owner)
        return self._grant(resource)

    def free(self, owner: Owner, resource: Resource) -> list[Owner]:
        """Release one resource of the owner. Returns the owners whose requests are granted."""
        mine = self._held[owner]
        mine.remove(resource)
        if not mine:
            del self._held[owner]
        del self._locks[resource].holders[owner]
        return self._grant(resource)

    def release(self, owner: Owner) -> list[Owner]:
        """Release all locks of the owner. Returns the owners whose requests are granted."""
        granted = self.withdraw(owner)
        for resource in self._held.pop(owner, ()):
            lock = self._locks[resource]
            del lock.holders[owner]
            granted += self._grant(resource)
        return granted

    # ---------------------------------------------------------------- who waits for whom
    def cycle(self, owner: Owner) -> tuple[Owner, ...]:
        """A cycle of waits through the owner; empty if there is none."""
        return cycle_of(owner, self._blockers)

    def _blockers(self, owner: Owner) -> list[Owner]:
        """The owners for whom this one waits: incompatible holders, and incompatible requests in front of it."""
        resource = self._waits.get(owner)
        if resource is None:
            return []
        lock = self._locks[resource]
        at = next(n for n, w in enumerate(lock.queue) if w.owner == owner)
        exclusive = lock.queue[at].exclusive
        blockers = [h for h, own in lock.holders.items() if h != owner and (exclusive or own)]
        blockers += [w.owner for w in list(lock.queue)[:at] if exclusive or w.exclusive]
        return list(dict.fromkeys(blockers))

    # ---------------------------------------------------------------- inside
    @staticmethod
    def _fits(lock: _Lock, owner: Owner | None, exclusive: bool) -> bool:
        """Whether no other holder blocks the owner."""
        return not any(holder != owner and (exclusive or own) for holder, own in lock.holders.items())

    def _may_have(self, lock: _Lock, owner: Owner | None, exclusive: bool) -> bool:
        if not self._fits(lock, owner, exclusive):
            return False
        if owner is not None and owner in lock.holders:
            return True
        return not any(w.owner != owner and (exclusive or w.exclusive) for w in lock.queue)

    def _unqueue(self, owner: Owner) -> None:
        lock = self._locks[self._waits.pop(owner)]
        lock.queue = deque(w for w in lock.queue if w.owner != owner)

    def _grant(self, resource: Resource) -> list[Owner]:
        """Grant the requests at the head of a queue that fit, and drop a resource without holders."""
        lock, granted = self._locks[resource], []
        while lock.queue and self._fits(lock, lock.queue[0].owner, lock.queue[0].exclusive):
            wait = lock.queue.popleft()
            del self._waits[wait.owner]
            lock.holders[wait.owner] = wait.exclusive or lock.holders.get(wait.owner, False)
            self._held.setdefault(wait.owner, set()).add(resource)
            granted.append(wait.owner)
        if not lock.holders:
            del self._locks[resource]
        return granted


class Blocked(Exception):
    """Another transaction holds a lock. `resource`: what the request needs; nothing of the request is done."""

    def __init__(self, resource: Resource, exclusive: bool = True):
        super().__init__("another transaction holds a lock")
        self.resource, self.exclusive = resource, exclusive


def locked() -> SqlError:
    """The error of a request that another transaction's lock delays, if the request must not wait."""
    return SqlError(*LOCK_NOWAIT, "Statement aborted because lock(s) could not be acquired immediately and NOWAIT is "
                                  "set.")


def deadlock() -> SqlError:
    """The error of the transaction that is rolled back to end a deadlock."""
    return SqlError(*LOCK_DEADLOCK, "Deadlock found when trying to get lock; try restarting transaction")
