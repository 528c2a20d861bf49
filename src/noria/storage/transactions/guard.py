"""Guards keep statements off the keys that other transactions have locked.

A stage calls its guard at each lookup of a key, and for each effect.  A refused key raises SqlError 3572, so the
statement is undone as after any other error.  The guard then has the resource, and the worker queues the statement.

Keeps true: what a transaction writes, it has locked.  A statement without a transaction writes nothing that is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from noria.dataflow.transactions.locks import Blocked, LockTable, Owner, Resource, locked
from noria.storage.statements.stage import Effect
from noria.storage.tables.table import StoredTable


class Guard:
    """The guard of one statement on one table.  owner: its transaction; None for a statement by itself.

    reserves: lock also the keys that are looked up, so that nobody adds rows with them.  blocked: what was refused.

    met: gets the keys that are looked up, if somebody wants to know them.  shared: the statement writes nothing here,
    so a shared lock is all that it waits for.
    """

    def __init__(self, locks: LockTable, owner: Owner | None, table: StoredTable, reserves: bool = False,
                 met: list[Resource] | None = None, shared: bool = False):
        self._met, self._shared = met, shared
        self._locks, self._owner, self._reserves = locks, owner, reserves
        self._families = {table.family, *(i.family for i in table.unique_indexes)}
        self._family = table.family
        self._wanted: dict[Resource, None] = {}
        self._needed: dict[Resource, None] = {}
        self.blocked: Blocked | None = None

    def meets(self, family: str, keys: Sequence[bytes]) -> None:
        """Refuse a key that another transaction has locked exclusively.  Its row may change before this statement's
        commit."""
        if family not in self._families:
            return
        if self._met is not None:
            self._met += ((family, key) for key in keys)
        if self._reserves:
            self._want([(family, key) for key in keys])
        else:
            self._refuse(((family, key) for key in keys), exclusive=False)

    def found(self, keys: Sequence[bytes]) -> None:
        """Lock the rows that a condition found."""
        self._want([(self._family, key) for key in keys])

    def needs(self, keys: Sequence[bytes]) -> None:
        """Lock these rows, shared with others who need them."""
        resources = [(self._family, key) for key in keys]
        self._refuse(resources, exclusive=False)
        self._needed.update(dict.fromkeys(resources))

    def changes(self, effect: Effect) -> None:
        """Lock the keys that the effect writes."""
        self._want([(change.family, key) for change in effect.changes if change.family in self._families
                    for key in (*change.removed, *change.keys)])

    @property
    def wanted(self) -> Collection[Resource]:
        """What `take` locks."""
        return self._wanted.keys()

    def take(self) -> None:
        """Lock, for the transaction, everything that its statement has found, needs, and has written."""
        wrong = self._locks.acquire(self._owner, self._wanted)
        if self._needed:
            wrong = wrong or self._locks.acquire(self._owner, self._needed, exclusive=False)
        assert wrong is None, "each resource was refused or free, and nothing ran in between"

    def _want(self, resources: list[Resource]) -> None:
        self._refuse(resources)
        self._wanted.update(dict.fromkeys(resources))

    def _refuse(self, resources: Iterable[Resource], exclusive: bool = True) -> None:
        wrong = self._locks.conflict(self._owner, resources, exclusive)
        if wrong is not None:  # a writer waits for an exclusive lock: several shared ones could not become exclusive
            self.blocked = Blocked(wrong, exclusive=not self._shared)
            raise locked()


Guards = Callable[[StoredTable], Guard | None]


def no_guard(table: StoredTable) -> None:
    """The `Guards` of changes that hold their locks already, or whose rows nobody can have locked."""
