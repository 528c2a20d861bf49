"""Random writes and the model that says what they must have done.

Several clients write at once, each only to rows of its own (`owner`): so each client's statements are ordered by
its acknowledgements, and the order between clients does not matter.  The model is SQLite, told every
acknowledged statement; one whose answer never came may be there wholly or not at all.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DUPLICATE = 1062
TABLES = (
    "CREATE TABLE items (owner INT NOT NULL, id INT NOT NULL, tag VARCHAR(10), n BIGINT NOT NULL,"
    " PRIMARY KEY (owner, id))",
    "CREATE TABLE log (owner INT NOT NULL, item INT, x BIGINT NOT NULL)",  # a bag: equal rows are different rows
    "CREATE TABLE codes (owner INT NOT NULL, id INT NOT NULL, code INT NOT NULL, PRIMARY KEY (owner, id),"
    " UNIQUE (code))",
)
OWNED = ("items", "log", "codes")
# name, columns and source, and the condition with the key; the model runs the same text.
VIEWS = {
    "by_tag": ("SELECT owner, id, n, tag FROM items WHERE tag = ?", ("tag",)),
    "totals": ("SELECT owner, COUNT(*) AS c, SUM(n) AS s, MIN(n) AS lo, MAX(n) AS hi FROM items GROUP BY owner", ()),
    "tags": ("SELECT tag, COUNT(*) AS c, SUM(n) AS s, MAX(id) AS hi FROM items WHERE owner = ? GROUP BY tag",
             ("owner",)),
    "joined": ("SELECT i.owner, i.id, i.tag, l.x FROM items i JOIN log l ON l.owner = i.owner AND l.item = i.id"
               " WHERE i.id = ?", ("id",)),
    "lefts": ("SELECT i.id, i.n, l.x FROM items i LEFT JOIN log l ON l.owner = i.owner AND l.item = i.id"
              " WHERE i.owner = ?", ("owner",)),
    "by_code": ("SELECT owner, id, code FROM codes WHERE code = ?", ("code",)),
    "coded": ("SELECT owner, COUNT(*) AS c, SUM(code) AS s FROM codes WHERE owner = ? GROUP BY owner", ("owner",)),
    "everything": ("SELECT l.x, COUNT(*) AS c, SUM(i.n) AS s FROM log l JOIN items i ON l.owner = i.owner"
                   " AND l.item = i.id GROUP BY l.x", ()),
}
TAGS = ("red", "green", "blue", "grey")
IDS = 12
MOST_OWNERS = 8  # a code is its owner and a multiple of this: two owners never want the same
CODES = MOST_OWNERS * 10
Key = tuple[Any, ...]


def keys_of(owners: int) -> dict[str, Sequence[Any]]:
    """All values of the columns that views are looked up by."""
    return {"tag": TAGS, "owner": range(owners), "id": range(IDS), "code": range(CODES)}


@dataclass(frozen=True)
class Statement:
    """The text for the server, and what the model does for it: texts, each with the key of its row, or all of the
    row, where that counts twice if there is one."""

    text: str
    model: tuple[tuple[str, tuple[Any, ...]], ...]


class Writer:
    """Statements of one client."""

    def __init__(self, owner: int, chance: random.Random):
        self._owner, self._chance = owner, chance

    def statement(self) -> Statement:
        makers = (self._insert, self._insert, self._replace, self._upsert, self._upsert, self._log, self._log,
                  self._update, self._update_log, self._delete, self._delete_log,
                  self._code, self._code, self._recode, self._code_replaced, self._code_moved, self._codes_moved,
                  self._uncode)
        return self._chance.choice(makers)()

    # ------------------------------------------------------------ rows
    def _item(self) -> tuple[Any, ...]:
        c = self._chance
        return self._owner, c.randrange(IDS), c.choice((*TAGS, None)), c.randrange(1, 50)

    def _items(self) -> list[tuple[Any, ...]]:
        return [self._item() for _ in range(self._chance.choice((1, 1, 1, 2, 5)))]

    def _insert(self) -> Statement:
        rows = self._items()
        return Statement(f"INSERT INTO items VALUES {_values(rows)}",
                         (("INSERT INTO items VALUES " + _values(rows), ()),))

    def _replace(self) -> Statement:
        rows = self._items()
        return Statement(f"REPLACE INTO items VALUES {_values(rows)}",
                         tuple((f"INSERT OR REPLACE INTO items VALUES {_values([r])}", r) for r in rows))

    def _upsert(self) -> Statement:
        rows = self._items()
        return Statement(f"INSERT INTO items VALUES {_values(rows)} ON DUPLICATE KEY UPDATE n = n + VALUES(n)",
                         tuple((f"INSERT INTO items VALUES {_values([r])} ON CONFLICT DO UPDATE SET n = n + excluded.n",
                                r[:2]) for r in rows))

    def _log(self) -> Statement:
        c = self._chance
        rows = [(self._owner, c.choice((None, *range(IDS))), c.randrange(4)) for _ in range(c.choice((1, 1, 3, 20)))]
        text = f"INSERT INTO log VALUES {_values(rows)}"
        return Statement(text, ((text, ()),))

    # ------------------------------------------------------------ codes: UNIQUE, and of rows that change their key
    def _coded(self) -> tuple[int, int, int]:
        c = self._chance
        return self._owner, c.randrange(IDS), self._owner + MOST_OWNERS * c.randrange(CODES // MOST_OWNERS)

    def _of_one(self) -> str:
        return f"owner = {self._owner} AND id = {self._chance.randrange(IDS)}"

    def _code(self) -> Statement:
        rows = [self._coded() for _ in range(self._chance.choice((1, 1, 3)))]
        return self._same(f"INSERT INTO codes VALUES {_values(rows)}")

    def _code_replaced(self) -> Statement:
        """Rows that have its key or its code go, and are counted, but for an equal one."""
        row = owner, id, code = self._coded()
        return Statement(f"REPLACE INTO codes VALUES {_values([row])}", (
            (f"DELETE FROM codes WHERE (owner = {owner} AND id = {id}) <> (code = {code})", ()),
            (f"INSERT OR REPLACE INTO codes VALUES {_values([row])}", ())))

    def _recode(self) -> Statement:
        return self._same(f"UPDATE codes SET code = {self._coded()[2]} WHERE {self._of_one()}")

    def _code_moved(self) -> Statement:
        return self._same(f"UPDATE codes SET id = {self._chance.randrange(IDS)} WHERE {self._of_one()}")

    def _codes_moved(self) -> Statement:
        """All of an owner, to where none is; or back."""
        there = self._chance.choice((f"+ {IDS} WHERE id < {IDS}", f"- {IDS} WHERE id >= {IDS}"))
        return self._same(f"UPDATE codes SET id = id {there} AND owner = {self._owner}")

    def _uncode(self) -> Statement:
        return self._same(f"DELETE FROM codes WHERE owner = {self._owner} AND code % 3 = {self._chance.randrange(3)}")

    def _same(self, text: str) -> Statement:
        return Statement(text, ((text, ()),))

    def _update(self) -> Statement:
        what = self._chance.choice(("n = n + 1", "n = n * 2 - 3, tag = 'red'", "tag = NULL", "tag = 'blue', n = id"))
        return self._same(f"UPDATE items SET {what} WHERE owner = {self._owner} AND {self._where('n', 'id')}")

    def _update_log(self) -> Statement:
        what = self._chance.choice(("x = x + 1", "x = 1, item = item + 1", "item = NULL"))
        return self._same(f"UPDATE log SET {what} WHERE owner = {self._owner} AND {self._where('x', 'item')}")

    def _delete(self) -> Statement:
        return self._same(f"DELETE FROM items WHERE owner = {self._owner} AND {self._where('n', 'id')}")

    def _delete_log(self) -> Statement:
        return self._same(f"DELETE FROM log WHERE owner = {self._owner} AND {self._where('x', 'item')}")

    def _where(self, number: str, id: str) -> str:
        c = self._chance
        return c.choice((f"{id} = {c.randrange(IDS)}", f"{id} IN ({c.randrange(IDS)}, {c.randrange(IDS)})",
                         f"({number} % 5 = {c.randrange(5)} OR {id} IS NULL)", f"{id} > {c.randrange(IDS)}",
                         f"NOT ({number} < {c.randrange(40)} AND {id} > 2)"))


def _values(rows: Sequence[Sequence[Any]]) -> str:
    def one(v: Any) -> str:
        return "NULL" if v is None else f"'{v}'" if isinstance(v, str) else str(v)

    return ", ".join(f"({', '.join(map(one, r))})" for r in rows)


class Model:
    """What the tables must hold."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        for text in TABLES:
            self._db.execute(text)

    def apply(self, statement: Statement) -> int | None:
        """Affected rows as MySQL counts them for a client that wants found rows; None for a duplicate key, which
        leaves nothing of the statement behind."""
        affected = 0
        self._db.execute("SAVEPOINT one")
        try:
            for text, key in statement.model:
                was = bool(key) and self._has(key)
                count = self._db.execute(text).rowcount
                affected += 1 + was if key else count
        except sqlite3.IntegrityError:
            self._db.execute("ROLLBACK TO one")
            return None
        finally:
            self._db.execute("RELEASE one")
        return affected

    def _has(self, key: Key) -> bool:
        """Is there a row that is changed?  A row that is replaced by an equal one counts once, in MySQL too."""
        differs = " AND NOT (tag IS ? AND n = ?)" if len(key) > 2 else ""
        return self._db.execute(f"SELECT 1 FROM items WHERE owner = ? AND id = ?{differs}", key).fetchone() is not None

    def would_be(self, statement: Statement, owner: int) -> dict[str, Counter[Any]]:
        """The owner's rows if the statement had been applied."""
        self._db.execute("SAVEPOINT would")
        self.apply(statement)
        found = self.of(owner)
        self._db.execute("ROLLBACK TO would")
        self._db.execute("RELEASE would")
        return found

    def of(self, owner: int) -> dict[str, Counter[Any]]:
        return {t: self.rows(f"SELECT * FROM {t} WHERE owner = {owner}") for t in OWNED}

    def rows(self, text: str, values: Sequence[Any] = ()) -> Counter[Any]:
        return Counter(self._db.execute(text, values).fetchall())
