"""Clients whose turns are transactions: what each statement may be answered with, and what the end of one means.

Keeps true: an error that ends a transaction is ordinary (1205, 1213) or permitted by the fault that is on.  Whether a
transaction took place is unknown only if its COMMIT, or a statement without a transaction, has no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pymysql

from chaos.workload.clients import LOST, NOTHING, Client, Text, Way, World, number_of
from histories.history import Outcome

LOCK_WAIT, DEADLOCK, DUPLICATE = 1205, 1213, 1062
ORDINARY = frozenset({LOCK_WAIT, DEADLOCK})
LOCK_WAIT_S = 5
LEVELS = ("READ COMMITTED", "REPEATABLE READ")


class TransactionClient(Client):
    """`way`: the connection of all its statements.  `committing`: the end of the transaction was sent."""

    def __init__(self, world: World, name: str):
        super().__init__(world, name)
        self.way: Way = Text(world)
        self.committing = False
        self._prepared: object = None  # the connection that has its settings

    def say(self, text: str) -> int:
        """Affected rows."""
        self._settings()
        return self.way.execute(text)

    def ask(self, text: str) -> list[Any]:
        self._settings()
        return self.way.rows(text)

    def _settings(self) -> None:
        if self.way.connection is None or self.way.connection is not self._prepared:
            self.way.execute(f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}")
            self._prepared = self.way.connection
            self.connected()

    def connected(self) -> None:
        """There is a new session."""

    def refused(self, number: int, text: str) -> None:
        """A statement that must be refused, which leaves the transaction as it was."""
        try:
            self.say(text)
        except pymysql.err.MySQLError as e:
            if number_of(e) != number:
                raise
            return
        raise AssertionError(f"{self.name}: no error {number}: {text}")

    def within(self, level: str, act: Callable[[], bool]) -> Outcome:
        """A transaction.  `act` returns whether it is to be committed."""
        permit = self.world.permit
        self.committing = False
        try:
            self.say(f"SET TRANSACTION ISOLATION LEVEL {level}")
            self.say("BEGIN")
            if not act():
                self.say("ROLLBACK")
                return Outcome.FAILED
            self.commit()
            self.world.journal.counts["acknowledged"] += 1
            return Outcome.OK
        except AssertionError:
            raise
        except Exception as e:
            return self.ended(e, permit)

    def alone(self, level: str, act: Callable[[], None]) -> Outcome:
        """One statement without a transaction."""
        permit = self.world.permit
        self.committing = False
        try:
            self.say(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            self.committing = True
            act()
            self.world.journal.counts["acknowledged"] += 1
            return Outcome.OK
        except AssertionError:
            raise
        except Exception as e:
            return self.ended(e, permit)

    def commit(self) -> None:
        self.committing = True
        self.say("COMMIT")

    def ended(self, error: Exception, permit: Any) -> Outcome:
        """What has become of the transaction that ended with this error.  Raises Failure if it is not permitted."""
        number = number_of(error)
        self.world.journal(self.name, f"transactions ended by {number}", text=str(error)[:300])
        if number not in ORDINARY:
            self.world.judge(self.name, self.way, error, "a transaction", permit)
            self.way.close()
        elif number == LOCK_WAIT:
            self.patiently("roll back", self.way, self._rolled_back)
        return Outcome.UNKNOWN if self.committing and number not in ORDINARY else Outcome.FAILED

    def _rolled_back(self) -> None:
        """On this connection, or on another one, which has nothing to roll back."""
        self.way.execute("ROLLBACK")

    def settled(self, text: str) -> bool:
        """Whether a row was inserted by a transaction without an answer: the key is locked while that is open.
        text: an INSERT of the key, which is undone."""
        def tried() -> bool:
            self.say("BEGIN")
            try:
                self.say(text)
            except pymysql.err.MySQLError as e:
                if number_of(e) == LOCK_WAIT or number_of(e) == DEADLOCK:
                    raise Again from e
                if number_of(e) != DUPLICATE:
                    raise
                return True
            finally:
                if self.way.connection is not None:
                    self._try_rollback()
            return False

        while True:
            try:
                return bool(self.patiently("settle " + text, self.way, tried))
            except Again:
                self.world.stop.wait(0.05)

    def _try_rollback(self) -> None:
        try:
            self.way.execute("ROLLBACK")
        except Exception as e:
            if number_of(e) not in (NOTHING, *LOST):
                raise
            self.way.close()


class Again(AssertionError):
    """A lock was not free.  Not an error of the connection, so it passes `patiently`."""
