"""Clients in the simulator, each with rows of its own, of which it knows at any time what there must be.

A client's own statements come one after the other; what it reads of its own rows must be what it wrote, whichever front
end and worker answers, whatever others do.  A statement whose answer was lost is done or is not: its client ends, and
at the end, at rest, all of its rows are as before it or as after it.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from noria.core.errors import SqlError
from noria.server.mysql.codec import Packet
from noria.server.mysql.session import Conversation, PendingReply
from simulated.server import Simulated

TABLES = (
    "CREATE TABLE posts (id INT PRIMARY KEY, owner INT, author INT, score INT)",
    "CREATE TABLE votes (post INT, who INT, owner INT, points INT, PRIMARY KEY (post, who))",
    "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, owner INT)",
    "CREATE TABLE log (owner INT, number INT)",
    "CREATE TABLE one (id INT PRIMARY KEY, n INT)",
    "CREATE VIEW stamp AS SELECT id, n + 0 AS k FROM one WHERE id = ?",
    "INSERT INTO one VALUES (0, 0)",
)
AUTHORS, EACH = 4, 1000
BASE_FLAGS = 1 | 1 << 9 | 1 << 13 | 1 << 15
Model = dict[str, list[tuple[Any, ...]]]


class Lost(Exception):
    """The front end is gone, and with it the answer."""


# ---------------------------------------------------------------- one connection
class Connection:
    def __init__(self, sim: Simulated):
        self._front = sim.rng.choice([f for _, f in sorted(sim.fronts.items())])
        self._conversation: Conversation = self._front.connect()
        self._conversation.greeting()
        login = struct.pack("<IIB23x", BASE_FLAGS, 1 << 24, 45) + b"\0\0"
        reply = self._conversation.receive(Packet(1, 2, login))
        assert isinstance(reply, bytes) and reply[4] == 0, reply

    @property
    def lost(self) -> bool:
        return self._front.gone.is_set()

    async def run(self, text: str) -> list[tuple[Any, ...]]:
        """The rows, as texts; SqlError; Lost."""
        if self.lost:
            raise Lost
        reply = self._conversation.command(b"\x03" + text.encode())
        if isinstance(reply, PendingReply):
            answer, gone = asyncio.ensure_future(reply.awaitable), asyncio.ensure_future(self._front.gone.wait())
            try:
                await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    raise Lost
                try:
                    reply = reply.encode(answer)
                except SqlError as e:
                    reply = reply.refuse(e)
            finally:
                gone.cancel()
                answer.cancel()
        return _rows(reply)

    def close(self) -> None:
        if not self.lost:
            self._conversation.close()


def _rows(reply: bytes) -> list[tuple[Any, ...]]:
    """What a text reply says."""
    packets, at = [], 0
    while at < len(reply):
        size = int.from_bytes(reply[at:at + 3], "little")
        packets.append(reply[at + 4:at + 4 + size])
        at += 4 + size
    if packets[0][0] == 0xFF:
        code, = struct.unpack_from("<H", packets[0], 1)
        raise SqlError(code, packets[0][4:9].decode(), packets[0][9:].decode())
    if packets[0][0] == 0:
        return []
    columns = packets[0][0]
    return [_row(p) for p in packets[columns + 2:-1]]


def _row(packet: bytes) -> tuple[Any, ...]:
    values: list[Any] = []
    at = 0
    while at < len(packet):
        size = packet[at]
        if size == 0xFB:
            values.append(None)
            at += 1
            continue
        text = packet[at + 1:at + 1 + size].decode()
        values.append(int(text) if text.lstrip("-").isdigit() else text)
        at += 1 + size
    return tuple(values)


# ---------------------------------------------------------------- what one client has
def empty() -> Model:
    return {"posts": [], "votes": [], "users": [], "log": []}


def counted(rows: list[tuple[Any, ...]], key: int, *more: Callable[[list[tuple[Any, ...]]], Any]
            ) -> list[tuple[Any, ...]]:
    """Groups of rows by a column: how many, and more of each."""
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return [(k, len(g), *(m(g) for m in more)) for k, g in groups.items()]


class Read:
    """text: with the client {c}, an author {a}, a post {p} and a number {n}; rows: of the client's own there must be,
    given these; mine: which of the rows found are its own."""

    def __init__(self, text: str, rows: Callable[[Model, dict[str, int]], list[tuple[Any, ...]]],
                 mine: Callable[[tuple[Any, ...], int], bool] = lambda row, c: True):
        self.text, self.rows, self.mine = text, rows, mine


def _of_posts(m: Model, author: int) -> list[tuple[Any, ...]]:
    return [(p[0], v[3]) for p in m["posts"] if p[2] == author for v in m["votes"] if v[0] == p[0]]


READS = (
    Read("SELECT id, author, score FROM posts WHERE id = {p}",
         lambda m, v: [(r[0], r[2], r[3]) for r in m["posts"] if r[0] == v["p"]]),
    Read("SELECT id, author, score FROM posts WHERE owner = {c}",
         lambda m, v: [(r[0], r[2], r[3]) for r in m["posts"]]),
    Read("SELECT id, score FROM posts WHERE author = {a}",
         lambda m, v: [(r[0], r[3]) for r in m["posts"] if r[2] == v["a"]], lambda r, c: r[0] // EACH == c),
    Read("SELECT owner, COUNT(*), MAX(score) FROM posts WHERE author = {a} GROUP BY owner",
         lambda m, v: counted([r for r in m["posts"] if r[2] == v["a"]], 1, lambda g: max(r[3] for r in g)),
         lambda r, c: r[0] == c),
    Read("SELECT author, COUNT(*), SUM(score) FROM posts WHERE owner = {c} GROUP BY author",
         lambda m, v: counted(m["posts"], 2, lambda g: sum(r[3] for r in g))),
    Read("SELECT owner, COUNT(*) FROM posts GROUP BY owner", lambda m, v: counted(m["posts"], 1),
         lambda r, c: r[0] == c),
    Read("SELECT post, COUNT(*), SUM(points) FROM votes WHERE post = {p} GROUP BY post",
         lambda m, v: counted([r for r in m["votes"] if r[0] == v["p"]], 0, lambda g: sum(r[3] for r in g))),
    Read("SELECT p.id, COUNT(*), SUM(v.points) FROM posts p JOIN votes v ON v.post = p.id WHERE p.author = {a} "
         "GROUP BY p.id", lambda m, v: counted(_of_posts(m, v["a"]), 0, lambda g: sum(r[1] for r in g)),
         lambda r, c: r[0] // EACH == c),
    Read("SELECT p.owner, COUNT(*) FROM posts p JOIN votes v ON v.post = p.id WHERE p.owner = {c} GROUP BY p.owner",
         lambda m, v: counted([(v["c"],) for a in range(AUTHORS) for _ in _of_posts(m, a)], 0)),
    Read("SELECT p.id, v.who FROM posts p LEFT JOIN votes v ON v.post = p.id AND v.points > 1 WHERE p.owner = {c}",
         lambda m, v: [(p[0], w) for p in m["posts"] for w in
                       [x[1] for x in m["votes"] if x[0] == p[0] and x[3] > 1] or [None]]),
    Read("SELECT id FROM posts WHERE score > {n} ORDER BY id",
         lambda m, v: [(r[0],) for r in m["posts"] if r[3] > v["n"]], lambda r, c: r[0] // EACH == c),
    Read("SELECT id, score FROM posts WHERE owner = {c} ORDER BY score DESC, id LIMIT 2",
         lambda m, v: [(r[0], r[3]) for r in sorted(m["posts"], key=lambda r: (-r[3], r[0]))[:2]]),
    Read("SELECT id, name FROM users WHERE owner = {c}", lambda m, v: [(r[0], r[1]) for r in m["users"]]),
    Read("SELECT number, COUNT(*) FROM log WHERE owner = {c} GROUP BY number",
         lambda m, v: counted(m["log"], 1)),
    Read("SELECT DISTINCT points FROM votes WHERE owner = {c}",
         lambda m, v: [(k,) for k in {r[3] for r in m["votes"]}]),
    Read("SELECT id FROM posts WHERE owner = {c} AND score + {n} > {n} + 2",
         lambda m, v: [(r[0],) for r in m["posts"] if r[3] > 2]),
    Read("SELECT author FROM posts WHERE owner = {c} UNION SELECT points FROM votes WHERE owner = {c}",
         lambda m, v: [(k,) for k in {r[2] for r in m["posts"]} | {r[3] for r in m["votes"]}]),
)


class Client:
    """number: its own; name: of its rows.  own: what of them there is; or: what there may be instead, once a
    statement's answer was lost."""

    def __init__(self, sim: Simulated, number: int):
        self.sim, self.rng, self.number = sim, random.Random(sim.rng.random()), number
        self.own: Model = empty()
        self.other: Model | None = None
        self.ids = number * EACH
        self.connection: Connection | None = None
        self.did: Counter[str] = Counter()
        self.log: list[str] = []

    # ------------------------------------------------------------ statements
    async def run(self, text: str) -> list[tuple[Any, ...]]:
        while self.connection is None or self.connection.lost:
            while not self.sim.fronts:
                await asyncio.sleep(0.1)
            self.connection = Connection(self.sim)
        self.log.append(f"{self.sim.loop.now:.2f} {text}")
        rows = await asyncio.wait_for(self.connection.run(text), 600)
        self.log[-1] += f" -> {rows}"
        return rows

    async def write(self) -> None:
        text, after = self._changed()
        self.did["write"] += 1
        try:
            await self.run(text)
        except SqlError as e:
            self.log[-1] += f" -> {e.code} {e}"
            if e.code == 1062:
                return
            self.other = after  # nobody knows
        except Lost:
            self.log[-1] += " -> lost"
            self.other = after
        else:
            self.own = after

    def _changed(self) -> tuple[str, Model]:
        r, after = self.rng, deepcopy(self.own)
        posts = after["posts"]
        kinds = [self._posts, self._user, self._log]
        if posts:
            kinds += [self._votes, self._scores, self._author, self._moved, self._gone, self._again,
                      self._moved_votes, self._renamed, self._taken]
        return r.choice(kinds)(after), after

    def _id(self) -> int:
        self.ids += 1
        return self.ids

    def _posts(self, m: Model) -> str:
        rows = [(self._id(), self.number, self.rng.randrange(AUTHORS), self.rng.randrange(6))
                for _ in range(self.rng.randint(1, 4))]
        m["posts"] += rows
        return f"INSERT INTO posts VALUES {', '.join(map(str, rows))}"

    def _taken(self, m: Model) -> str:
        """Nothing comes of it, whoever else goes with it."""
        rows = [(self._id(), self.number, 0, 0), (*self.rng.choice(m["posts"])[:1], self.number, 0, 0)]
        return f"INSERT INTO posts VALUES {', '.join(map(str, rows))}"

    def _votes(self, m: Model) -> str:
        keys = {(self.rng.choice(m["posts"])[0], self.rng.randrange(5)) for _ in range(3)}
        keys -= {v[:2] for v in m["votes"]}
        rows = [(*k, self.number, self.rng.randrange(4)) for k in sorted(keys)]
        if not rows:
            return self._log(m)
        m["votes"] += rows
        return f"INSERT INTO votes VALUES {', '.join(map(str, rows))}"

    def _user(self, m: Model) -> str:
        rows = [(self._id(), f"n{self.rng.randrange(12)}", self.number) for _ in range(self.rng.choice([1, 1, 2, 3]))]
        m["users"] += rows
        return f"INSERT INTO users VALUES {', '.join(map(str, rows))}"

    def _renamed(self, m: Model) -> str:
        if not m["users"]:
            return self._user(m)
        i = self.rng.randrange(len(m["users"]))
        m["users"][i] = (m["users"][i][0], f"n{self.rng.randrange(12)}", self.number)
        return f"UPDATE users SET name = '{m['users'][i][1]}' WHERE id = {m['users'][i][0]}"

    def _log(self, m: Model) -> str:
        rows = [(self.number, self.rng.randrange(3)) for _ in range(self.rng.randint(1, 2))]
        m["log"] += rows
        return f"INSERT INTO log VALUES {', '.join(map(str, rows))}"

    def _scores(self, m: Model) -> str:
        m["posts"] = [(*p[:3], p[3] + 1) for p in m["posts"]]
        return f"UPDATE posts SET score = score + 1 WHERE owner = {self.number}"

    def _author(self, m: Model) -> str:
        i, author = self.rng.randrange(len(m["posts"])), self.rng.randrange(AUTHORS)
        p = m["posts"][i]
        m["posts"][i] = (p[0], p[1], author, p[3])
        return f"UPDATE posts SET author = {author} WHERE id = {p[0]}"

    def _again(self, m: Model) -> str:
        i = self.rng.randrange(len(m["posts"]))
        p = m["posts"][i]
        m["posts"][i] = (*p[:3], p[3] + 2)
        return f"INSERT INTO posts VALUES {p} ON DUPLICATE KEY UPDATE score = score + 2"

    def _moved(self, m: Model) -> str:
        """A row goes to another worker, perhaps; its votes stay."""
        i, to = self.rng.randrange(len(m["posts"])), self._id()
        p = m["posts"][i]
        m["posts"][i] = (to, *p[1:])
        return f"UPDATE posts SET id = {to} WHERE id = {p[0]}"

    def _moved_votes(self, m: Model) -> str:
        m["votes"] = [(v[0], v[1] + 10, *v[2:]) for v in m["votes"]]
        return f"UPDATE votes SET who = who + 10 WHERE owner = {self.number}"

    def _gone(self, m: Model) -> str:
        if self.rng.random() < 0.3:
            m["votes"] = []
            return f"DELETE FROM votes WHERE owner = {self.number}"
        p = m["posts"].pop(self.rng.randrange(len(m["posts"])))
        return f"DELETE FROM posts WHERE id = {p[0]}"

    # ------------------------------------------------------------ reads
    async def read(self, read: Read | None = None) -> None:
        read = read or self.rng.choice(READS)
        posts = [p[0] for p in self.own["posts"]] or [0]
        values = {"c": self.number, "a": self.rng.randrange(AUTHORS), "p": self.rng.choice(posts),
                  "n": self.rng.randrange(4)}
        self.did["read"] += 1
        try:
            found = await self.run(read.text.format(**values))
        except Lost:
            self.log[-1] += " -> lost"
            return
        except SqlError as e:
            self.log[-1] += f" -> {e.code} {e}"
            if e.code != 1105 or "worker" not in str(e):
                raise
            self.did["refused"] += 1
            return
        have = sorted([r for r in found if read.mine(r, self.number)], key=str)
        want = [sorted(read.rows(m, values), key=str) for m in (self.own, self.other) if m is not None]
        assert have in want, f"client {self.number}, {read.text.format(**values)}: {have}, not one of {want}"

    async def live(self, steps: int) -> None:
        """Until so many statements are done, or its connection is lost: another session need not see at once what
        this one wrote."""
        for _ in range(steps):
            await (self.write() if self.rng.random() < 0.5 else self.read())
            if self.other is not None or self.lost:
                break
        self.close()

    @property
    def lost(self) -> bool:
        return self.connection is not None and self.connection.lost

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    async def at_rest(self, reads: int) -> None:
        """All is as it must be, or as it may be."""
        self.log.append("at rest")
        found = [sorted(await self.run(f"SELECT * FROM {t} WHERE {column} = {self.number}"), key=str)
                 for t, column in (("posts", "owner"), ("votes", "owner"), ("users", "owner"), ("log", "owner"))]
        for m in (self.own, self.other):
            if m is not None and found == [sorted(m[t], key=str) for t in ("posts", "votes", "users", "log")]:
                self.own, self.other = m, None
                break
        else:
            raise AssertionError(f"client {self.number} has {found}, not {self.own} or {self.other}")
        for read in self.rng.sample(READS, reads):
            await self.read(read)
        self.close()


class Programmer:
    """Changes the program; whoever asks after a change was acknowledged has what it says.  known: the last stamp that
    was acknowledged, begun: the last that was asked for; there: whether other views are, None if nobody knows."""

    def __init__(self, sim: Simulated):
        self.sim, self.rng, self.known, self.begun = sim, random.Random(sim.rng.random()), 0, 0
        self.there: dict[str, bool | None] = {}
        self.log: list[str] = []

    async def change(self) -> None:
        kind = self.rng.random()
        if kind < 0.5:
            self.begun += 1
            now = self.begun
            if await self._told(f"CREATE OR REPLACE VIEW stamp AS SELECT id, n + {now} AS k FROM one WHERE id = ?"):
                self.known = max(now, self.known)
            return
        gone = [n for n, there in self.there.items() if there]
        name = f"extra{len(self.there)}" if kind < 0.8 or not gone else self.rng.choice(gone)
        drops = name in self.there
        self.there[name] = None
        text = f"CREATE VIEW {name} AS {self.rng.choice(EXTRA)}"
        if await self._told(f"DROP VIEW {name}" if drops else text):
            self.there[name] = not drops

    async def look(self) -> None:
        """By a session of its own."""
        least, there = self.known, [(n, t) for n, t in self.there.items() if t is not None]
        client = Client(self.sim, 0)
        name, is_there = self.rng.choice(there) if there and self.rng.random() < 0.4 else ("stamp", True)
        text = "SELECT k FROM stamp WHERE id = 0" if name == "stamp" else f"SELECT * FROM {name} WHERE author = 1"
        try:
            rows = await client.run(text)
        except Lost:
            return
        except SqlError as e:
            assert (e.code == 1146 and not (is_there and self.there[name])) or (
                e.code == 1105 and "worker" in str(e)), f"{text}: {e.code} {e}"
            return
        finally:
            client.close()
        assert is_there or self.there[name] is not False, f"{name} answers though it was dropped"
        if name == "stamp":
            assert len(rows) == 1 and least <= rows[0][0] <= self.begun, f"stamp is {rows}, though {least} was told"

    async def _told(self, text: str) -> bool:
        client = Client(self.sim, 0)
        try:
            await client.run(text)
            return True
        except Lost:
            return False
        except SqlError as e:
            if e.code != 1105:
                raise
            return False
        finally:
            client.close()
            self.log += client.log


EXTRA = ("SELECT author, COUNT(*) AS n FROM posts WHERE author = ? GROUP BY author",
         "SELECT author, score FROM posts WHERE author = ?",
         "SELECT p.author, v.points FROM posts p JOIN votes v ON v.post = p.id WHERE p.author = ?")
