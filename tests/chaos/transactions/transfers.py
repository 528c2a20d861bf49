"""Money moves between accounts in transactions: its sum never changes, and each account has what its entries say.

A transfer changes 2 to 4 accounts, adds an entry for each (a child of the account) and a row in `transfers`, so it is
known afterwards whether it took place.  Some read FOR UPDATE first and write what they have computed, some change a
UNIQUE column or move an entry to another account, some go back to a savepoint, some roll back.

Keeps true: all rows of a transfer are in one transaction.  Whoever reads one moment finds the same sum.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import noria
from chaos.transactions.session import LEVELS, TransactionClient
from chaos.workload.clients import Failure, Text, World
from e2e.serving import execute, rows
from histories.history import Outcome

ACCOUNTS, BRANCHES, START = 12, 3, 1_000
TOTAL = ACCOUNTS * START
CLIENTS, READERS = 4, 2
NO_PARENT, HAS_CHILDREN, DUPLICATE = 1452, 1451, 1062
MADE = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, branch INT NOT NULL, balance BIGINT NOT NULL, code INT NOT NULL,"
    " UNIQUE (code))",
    "CREATE TABLE transfers (id INT PRIMARY KEY, accounts INT NOT NULL)",
    "CREATE TABLE entries (id INT PRIMARY KEY, transfer INT NOT NULL, account INT NOT NULL, amount BIGINT NOT NULL,"
    " KEY (transfer), FOREIGN KEY (account) REFERENCES accounts (id))",
    "CREATE VIEW total AS SELECT SUM(balance) AS s, COUNT(*) AS c FROM accounts",
    "CREATE VIEW by_branch AS SELECT branch, SUM(balance) AS s, COUNT(*) AS c FROM accounts WHERE branch = ?"
    " GROUP BY branch",
    "CREATE VIEW ledger AS SELECT account, SUM(amount) AS s FROM entries WHERE account = ? GROUP BY account",
    "CREATE VIEW sums AS SELECT account, SUM(amount) AS s FROM entries GROUP BY account",
    "CREATE MATERIALIZED VIEW wrong AS SELECT a.id, a.balance, l.s FROM accounts a JOIN sums l ON l.account = a.id"
    " WHERE a.balance <> l.s",
    "CREATE MATERIALIZED VIEW uneven AS SELECT transfer, SUM(amount) AS s, COUNT(*) AS c FROM entries"
    " WHERE transfer > 0 GROUP BY transfer HAVING SUM(amount) <> 0",
    "INSERT INTO accounts VALUES " + ", ".join(f"({i}, {i % BRANCHES}, {START}, {i})" for i in range(ACCOUNTS)),
    "INSERT INTO entries VALUES " + ", ".join(f"({i}, 0, {i}, {START})" for i in range(ACCOUNTS)),
)
FOLLOWED = {"account_changes": "SELECT balance, 1 AS one, id FROM accounts",
            "total_changes": "SELECT SUM(balance) AS s, COUNT(*) AS c FROM accounts"}
FEEDS = tuple(f"CREATE FEED {name} AS {text}" for name, text in FOLLOWED.items())
ALL_BRANCHES = f"SELECT s, c FROM by_branch WHERE branch IN ({', '.join(map(str, range(BRANCHES)))})"
SUMS = ("SELECT SUM(balance), COUNT(*) FROM accounts", "SELECT s, c FROM total", ALL_BRANCHES,
        "SELECT balance, 1 FROM accounts", "SELECT SUM(amount), COUNT(DISTINCT account) FROM entries",
        "SELECT SUM(a.balance), COUNT(*) FROM accounts a JOIN sums s ON s.account = a.id")
NOTHING = ("SELECT * FROM wrong", "SELECT * FROM uneven",
           "SELECT transfer, SUM(amount) FROM entries WHERE transfer > 0 GROUP BY transfer HAVING SUM(amount) <> 0")


@dataclass
class Bank:
    """What is known of transfers: by number, what became of them.  `books`: how often the books were closed."""

    ids: Iterator[int] = field(default_factory=lambda: itertools.count(ACCOUNTS + 1))
    done: dict[int, Outcome] = field(default_factory=dict)
    books: int = 0
    total: int = 0
    sums: Counter[str] = field(default_factory=Counter)

    def compare(self, connection: Any) -> None:
        """Everything, while nobody writes."""
        for text in SUMS:
            right(text, rows(connection, text), "when nobody writes")
        for text in NOTHING:
            if found := rows(connection, text):
                raise Failure(f"{text}, when nobody writes: {found}")
        balances = dict(rows(connection, "SELECT id, balance FROM accounts"))
        for account, balance in balances.items():
            for text in (f"SELECT s FROM ledger WHERE account = {account}",
                         f"SELECT SUM(amount) FROM entries WHERE account = {account}"):
                if (found := [int(r[0]) for r in rows(connection, text)]) != [balance]:
                    raise Failure(f"account {account} has {balance}, and {text} finds {found}")
        if len({r[0] for r in rows(connection, "SELECT code FROM accounts")}) != ACCOUNTS:
            raise Failure("two accounts have one code")
        self._outcomes(connection)

    def close_books(self, connection: Any) -> None:
        """Replace the entries by one for each account, so that reads of all stay short."""
        self.total += len(self.done)
        balances = rows(connection, "SELECT id, balance FROM accounts")
        entries = ", ".join(f"({i}, 0, {i}, {balance})" for i, balance in balances)
        for text in ("BEGIN", "DELETE FROM entries", "DELETE FROM transfers", f"INSERT INTO entries VALUES {entries}",
                     "COMMIT"):
            execute(connection, text)
        self.done, self.books = {}, self.books + 1

    def _outcomes(self, connection: Any) -> None:
        found = dict(rows(connection, "SELECT id, accounts FROM transfers"))
        entries = Counter(r[0] for r in rows(connection, "SELECT transfer FROM entries WHERE transfer > 0"))
        lost = {n for n, outcome in self.done.items() if outcome is Outcome.OK} - set(found)
        undead = {n for n, outcome in self.done.items() if outcome is Outcome.FAILED} & set(found)
        if lost or undead or dict(entries) != {n: c for n, c in found.items() if c}:
            raise Failure(f"transfers that were acknowledged and are not there: {lost}; that failed and are there: "
                          f"{undead}; entries by transfer: {entries - Counter(found)}, {Counter(found) - entries}")


def right(text: str, found: list[Any], when: str) -> None:
    total, count = sum(int(r[0]) for r in found), sum(int(r[1]) for r in found)
    if (total, count) != (TOTAL, ACCOUNTS):
        raise Failure(f"{text}, {when}: the sum is {total}, of {count} accounts, instead of {TOTAL}, of {ACCOUNTS}: "
                      f"{found}")


class TransferClient(TransactionClient):
    def __init__(self, world: World, bank: Bank, number: int):
        super().__init__(world, f"transfers {number}")
        self._bank, self._number, self._level, self._books = bank, 0, "", 0
        self._mine: list[tuple[int, int, int]] = []  # entries: id, account, amount
        self._made: list[tuple[int, int, int]] = []

    def turn(self) -> None:
        if self._books != self._bank.books:
            self._books, self._mine = self._bank.books, []
        self._number, self._level, self._made = next(self._bank.ids), self.chance.choice(LEVELS), []
        outcome = self.within(self._level, self._transfer)
        if outcome is Outcome.UNKNOWN:
            there = self.settled(f"INSERT INTO transfers VALUES ({self._number}, 0)")
            self.world.journal.counts[f"transfers without an answer, {'' if there else 'not '}there"] += 1
            outcome = Outcome.OK if there else Outcome.FAILED
        self._bank.done[self._number] = outcome
        if outcome is Outcome.OK:
            self._mine = [*self._mine, *self._made][-20:]
        self.world.journal.counts[f"transfers {outcome.value}"] += 1
        self.world.stop.wait(self.chance.random() * 0.01)

    def _transfer(self) -> bool:
        chance, n = self.chance, self._number
        if chance.random() < 0.15 and self._mine:
            return self._rebooked()
        accounts = chance.sample(range(ACCOUNTS), chance.randint(2, 4))
        if chance.random() < 0.6:
            accounts.sort()  # fewer deadlocks
        amounts = [chance.randint(1, 50) for _ in accounts[1:]]
        moved = dict(zip(accounts, [-sum(amounts), *amounts], strict=True))
        kind = chance.choice(("blind", "blind", "computed", "one statement", "savepoint", "rolled back", "code",
                              "refused"))
        self.say(f"INSERT INTO transfers VALUES ({n}, {len(moved)})")
        if kind == "savepoint":
            self._undone(accounts)
        if kind == "one statement":
            cases = " ".join(f"WHEN {a} THEN {m}" for a, m in moved.items())
            self.say(f"UPDATE accounts SET balance = balance + CASE id {cases} END WHERE id IN "
                     f"({', '.join(map(str, moved))})")
        else:
            self._change(moved, kind == "computed")
        if kind == "code":
            self.say(f"UPDATE accounts SET code = {1_000 + n} WHERE id = {max(1, accounts[0])}")
        self._made = [(n * 10 + i, a, m) for i, (a, m) in enumerate(moved.items())]
        self.say("INSERT INTO entries VALUES " + ", ".join(f"({e}, {n}, {a}, {m})" for e, a, m in self._made))
        if kind == "refused":
            self.refused(NO_PARENT, f"UPDATE entries SET account = 999 WHERE id = {self._made[0][0]}")
            self.refused(HAS_CHILDREN, f"DELETE FROM accounts WHERE id = {accounts[0]}")
            self.refused(DUPLICATE, f"UPDATE accounts SET code = 0 WHERE id = {max(1, accounts[0])}")
        if self._level == LEVELS[0] and self.world.workers == 1 and chance.random() < 0.3:
            right(SUMS[0], self.ask(SUMS[0]), "within a transaction that has moved money")
        return kind != "rolled back"

    def _change(self, moved: dict[int, int], computed: bool) -> None:
        some = ", ".join(map(str, moved))
        if computed:
            read = dict(self.ask(f"SELECT id, balance FROM accounts WHERE id IN ({some}) ORDER BY id FOR UPDATE"))
        for account, amount in moved.items():
            value = str(read[account] + amount) if computed else f"balance + {amount}"
            self.say(f"UPDATE accounts SET balance = {value} WHERE id = {account}")

    def _undone(self, accounts: list[int]) -> None:
        """Changes of which nothing is to stay."""
        self.say("SAVEPOINT before")
        self.say(f"UPDATE accounts SET balance = balance - 500, code = {1_000 + self._number} "
                 f"WHERE id = {max(1, accounts[0])}")
        self.say(f"INSERT INTO entries VALUES ({self._number * 10 + 9}, {self._number}, {accounts[-1]}, 500)")
        self.say("ROLLBACK TO before")

    def _rebooked(self) -> bool:
        """An own entry belongs to another account now, and so does its amount."""
        entry, was, amount = self.chance.choice(self._mine)
        now = self.chance.choice([a for a in range(ACCOUNTS) if a != was])
        self.say(f"INSERT INTO transfers VALUES ({self._number}, 0)")
        self.say(f"UPDATE entries SET account = {now} WHERE id = {entry}")
        for account, more in sorted(((was, -amount), (now, amount))):
            self.say(f"UPDATE accounts SET balance = balance + {more} WHERE id = {account}")
        self._mine = [e for e in self._mine if e[0] != entry]
        self._made = [(entry, now, amount)]
        return True


class SumReader(TransactionClient):
    """Reads sums: of a snapshot, of rows that are all locked, and with one worker of any statement."""

    def __init__(self, world: World, bank: Bank, number: int):
        super().__init__(world, f"sums {number}")
        self.way, self._bank = Text(world, straight=True), bank

    def turn(self) -> None:
        what = self.chance.random()
        self._asked: list[tuple[float, str]] = []
        if what < 0.5:
            self.within(LEVELS[1], self._snapshot)
        elif what < 0.55:
            self.within(self.chance.choice(LEVELS), self._locked)
        elif self.world.workers == 1:
            self.alone(LEVELS[0], self._one)
        self.world.stop.wait(0.01)

    def _one(self) -> None:
        text = self.chance.choice((*SUMS, *NOTHING))
        self._right(text, "in one statement")

    def _snapshot(self) -> bool:
        for _ in range(self.chance.randint(1, 6)):
            self._right(self.chance.choice((*SUMS, *NOTHING)), "in a snapshot")
        return self.chance.random() < 0.5

    def _locked(self) -> bool:
        text = "SELECT balance, 1 FROM accounts FOR UPDATE"
        right(text, self.ask(text), "with all rows locked")
        return True

    def _right(self, text: str, when: str) -> None:
        self._asked.append((self.world.journal.now(), text))
        found = self.ask(text)
        when = f"{when} of {self._asked}, answered at {self.world.journal.now()}"
        if text not in NOTHING:
            right(text, found, when)
        elif found:
            raise Failure(f"{text}, {when}: {found}")
        self._bank.sums[when.partition(" of ")[0]] += 1


class FeedReader(threading.Thread):
    """Follows a feed of the accounts.  With one worker each watermark is a moment, so the sum is right at each."""

    def __init__(self, world: World, name: str):
        super().__init__(name=f"feed of {name}", daemon=True)
        self._world, self.feed = world, name
        self._rows: Counter[Any] = Counter()
        self._since, self._way = "start", FeedWay(world)
        self.ticks = 0

    def run(self) -> None:
        while not self._world.stop.is_set() and not self._world.failures:
            permit = self._world.permit
            pending: list[Any] = []
            try:
                for some in self._way.changes(self.feed, self._since):
                    pending += [(sign, plain(row)) for sign, row in some]
                    if some.watermark:
                        self._tick(pending, some.watermark)
                        pending = []
                    if self._world.stop.is_set():
                        return
            except BaseException as e:
                self._lost(e, permit)

    def _tick(self, pending: list[Any], watermark: str) -> None:
        found = Counter(self._rows)
        for sign, row in pending:
            found[row] += sign
        self._rows, self._since = Counter({r: n for r, n in found.items() if n}), watermark
        self.ticks += 1
        if min(self._rows.values(), default=1) < 0:
            raise Failure(f"{self.name} at {watermark}: rows below zero: {self._rows}")
        if self._world.workers == 1:
            self._right(watermark)

    def _right(self, when: str) -> None:
        right(self.name, [(r[0], r[1]) for r in self._rows.elements()], f"at {when}")

    def _lost(self, error: BaseException, permit: Any) -> None:
        if self._world.stop.is_set():
            return
        try:
            if isinstance(error, AssertionError) or not isinstance(error, Exception):
                raise error
            self._world.judge(self.name, self._way, error, "a feed", permit)
        except BaseException as e:
            self._world.failures.append(e)
        self._way.close()
        self._world.stop.wait(0.2)

    def compare(self, connection: Any, text: str) -> None:
        want = Counter(plain(r) for r in rows(connection, text))
        if self._rows != want:
            raise Failure(f"{self.name} has not what the table has\ntoo much: {self._rows - want}\n"
                          f"missing: {want - self._rows}")


class FeedWay(Text):
    """A client over HTTP, whose connections may be lost like others."""

    def changes(self, name: str, since: str) -> Any:
        self.since = self._world.faults
        self._open = noria.connect(self._world.server.url)
        return self._open.view(name).changes(since)


def plain(row: Any) -> tuple[Any, ...]:
    return tuple(int(v) if isinstance(v, Decimal) else v for v in row)
