"""A client that writes integers at the ends of their ranges, under views whose expressions overflow for some of them.

Keeps true: a value in range is stored as it is, one out of range is error 1264 and stores nothing; a view's row whose
expression overflows is error 1690 for whoever reads its key, and for nobody else; a full AUTO_INCREMENT column
refuses the next row and stores nothing; no row ever has a NULL key.  The model is Python's unbounded integers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from chaos.workload.clients import CONVERGE_S, NOTHING, Client, Failure, Text, World, number_of

HIGH, LOW = 2**63 - 1, -(2**63) + 2  # of BIGINT; its two lowest values are refused
TINY = 127  # the last AUTO_INCREMENT value of a TINYINT
GROUPS, IDS = 5, 40
MADE = ("CREATE TABLE edges (id INT PRIMARY KEY, k INT NOT NULL, n BIGINT NOT NULL)",
        "CREATE TABLE ends (id TINYINT AUTO_INCREMENT PRIMARY KEY, n INT NOT NULL)",
        "CREATE VIEW edge_sums AS SELECT k, COUNT(*) AS c, SUM(n) AS s, MIN(n) AS lo, MAX(n) AS hi FROM edges"
        " WHERE k = ? GROUP BY k",
        "CREATE VIEW edge_next AS SELECT k, id, n + 1 AS x FROM edges WHERE k = ?",
        "CREATE VIEW edge_twice AS SELECT k, id, n * 2 AS x FROM edges WHERE k = ?",
        "CREATE VIEW edge_rounded AS SELECT k, id, ROUND(n, -3) AS x FROM edges WHERE k = ?",
        "CREATE VIEW edge_cut AS SELECT k, id, TRUNCATE(n, -19) AS x FROM edges WHERE k = ?",
        "CREATE VIEW edge_period AS SELECT k, id, PERIOD_ADD(202001, n) AS x FROM edges WHERE k = ?")
TOO_BIG, OVERFLOW, EXHAUSTED = 1264, 1690, frozenset({167, 1467, 1062})
Row = tuple[int, int]  # group and value


def rounded(n: int) -> int:
    """To thousands, halves away from zero, as MySQL rounds."""
    return (abs(n) + 500) // 1000 * 1000 * (1 if n >= 0 else -1)


COMPUTED: dict[str, Callable[[int], int]] = {
    "edge_next": lambda n: n + 1, "edge_twice": lambda n: n * 2, "edge_rounded": rounded, "edge_cut": lambda n: 0}


class Boundaries(Client):
    """Rows that nobody else writes; each statement done twice is done once."""

    def __init__(self, world: World):
        super().__init__(world, "boundaries")
        self._way, self.rows = Text(world), dict[int, Row]()

    def turn(self) -> None:
        self.chance.choice((self._replace, self._replace, self._delete, self._too_big, self._fill))()
        self._read(self.chance.randrange(GROUPS))
        self.world.stop.wait(0.01)

    # ------------------------------------------------------------ writes
    def _replace(self) -> None:
        c = self.chance
        some = {c.randrange(IDS): (c.randrange(GROUPS), c.choice((LOW, LOW + 1, HIGH - 1, HIGH, c.randrange(-9, 9))))
                for _ in range(c.randrange(1, 4))}
        values = ", ".join(f"({id}, {k}, {n})" for id, (k, n) in some.items())
        self._write(f"REPLACE INTO edges VALUES {values}")
        self.rows.update(some)

    def _delete(self) -> None:
        id = self.chance.randrange(IDS)
        self._write(f"DELETE FROM edges WHERE id = {id}")
        self.rows.pop(id, None)

    def _too_big(self) -> None:
        n = self.chance.choice((HIGH + 1, -(2**63) - 1, 2**64, -(2**64)))
        text = f"REPLACE INTO edges VALUES ({self.chance.randrange(IDS)}, 0, {n})"
        if (found := self._number(text)) != TOO_BIG:
            raise Failure(f"{self.name}: {text} is answered with {found or 'OK'}, not with error {TOO_BIG}")

    def _fill(self) -> None:
        """Rows until the counter has no value left: the rows that are there then stay, and there is no other one."""
        self._write("TRUNCATE TABLE ends")
        self._write(f"ALTER TABLE ends AUTO_INCREMENT = {TINY - 3}")
        for n in range(TINY):  # an INSERT without an answer may have taken a value
            found = self._number(f"INSERT INTO ends (n) VALUES ({n}), ({n})")
            if found in EXHAUSTED:
                return self._compare_ends()
            if found != NOTHING:
                raise Failure(f"{self.name}: error {found} of an INSERT into ends")
        raise Failure(f"{self.name}: {TINY} INSERTs and the counter has values yet")

    def _compare_ends(self) -> None:
        found = self._rows("SELECT id, n FROM ends")
        pairs = Counter(n for _, n in found)
        if any(id is None or not 0 < id <= TINY for id, _ in found) or any(c % 2 for c in pairs.values()):
            raise Failure(f"{self.name}: after AUTO_INCREMENT had no value left, ends has {found}")

    def _write(self, text: str) -> None:
        if (found := self._number(text)) != NOTHING:
            raise Failure(f"{self.name}: error {found} of {text}")

    def _number(self, text: str) -> int:
        """The number of the statement's own error, or NOTHING: faults are waited out."""
        def act() -> int:
            try:
                self._way.execute(text)
            except Exception as e:
                if number_of(e) in EXHAUSTED | {TOO_BIG}:
                    return number_of(e)
                raise
            return NOTHING

        return int(self.patiently(text, self._way, act))

    # ------------------------------------------------------------ reads
    def _read(self, k: int) -> None:
        group = {id: n for id, (of, n) in self.rows.items() if of == k}
        total = sum(group.values())  # one beyond a BIGINT is 1690 here, though exact inside
        sums = [(k, len(group), total, min(group.values()), max(group.values()))] if group else []
        self._same("SELECT k, c, s, lo, hi FROM edge_sums", k, Counter(sums) if LOW <= total <= HIGH else None)
        for view, compute in COMPUTED.items():
            want = Counter((id, compute(n)) for id, n in group.items())
            fits = all(LOW <= x <= HIGH for _, x in want)
            self._same(f"SELECT id, x FROM {view}", k, want if fits else None)
        for select in ("SELECT id, x FROM edge_period", "SELECT id, ROUND(n, -19) FROM edges"):
            self._rows(f"{select} WHERE k = {k}")  # an answer or 1690, and no worker ends of it

    def _same(self, select: str, k: int, want: Counter[Any] | None) -> None:
        """want: None for error 1690.  After a lost connection another session reads: soon."""
        text, end = f"{select} WHERE k = {k}", time.monotonic() + CONVERGE_S
        while (found := self._found(text)) != want:
            if time.monotonic() > end:
                raise Failure(f"{self.name}: {text}\nfound: {found}\nwant: {want}")
            self.world.stop.wait(0.05)

    def _found(self, text: str) -> Counter[Any] | None:
        found = self._rows(text)
        return None if found is None else Counter(tuple(int(v) if isinstance(v, Decimal) else v for v in r)
                                                  for r in found)

    def _rows(self, text: str) -> Any:
        def act() -> Any:
            try:
                return self._way.rows(text)
            except Exception as e:
                if number_of(e) == OVERFLOW:
                    return None
                raise

        return self.patiently(text, self._way, act)
