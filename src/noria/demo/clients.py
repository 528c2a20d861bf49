"""A client process of the demo: on one MySQL connection it reads and votes, and measures each statement.

    demo ── Setup, then Profile (what to do from now on; None: rest), Cut (send the measurements) ──► client
    demo ◄── READY, then Samples for each Cut ─────────────────────────────────────────────────────── client

Half of the clients use PyMySQL with text statements.  The others use mysql-connector with server-side prepared
statements.

Keeps true: the time of a statement includes fetching all its rows.  The first error ends the client, and is sent to the
demo.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from array import array
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from noria.core.codec import Codec
from noria.demo.lobsters import Ints, Size, votes_of_stories

READ = "SELECT id, author, title, url, vcount FROM StoriesWithVC WHERE id = {0}"
VOTE = "INSERT INTO votes (user, story_id) VALUES ({0}, {0})"
READY = "ready"
USERS_EACH = 10_000_000  # voters of one client: no user votes twice for a story, even across clients
LOOK_EVERY = 16  # statements between two checks for messages
DRAWN = 4096  # stories drawn at a time

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Setup:
    """The first message to a client.  number: its number among the clients of this server, from 0."""

    port: int
    number: int
    size: Size


@dataclass(frozen=True)
class ClientProfile:
    """What a client does.  `writes`: the share of votes among the statements.  `stories`: only these, None for all.
    They are drawn by popularity.  With `once`, each is used once, in this order, and then the client rests."""

    writes: float
    stories: Ints | None = None
    once: bool = False


@dataclass(frozen=True)
class Cut:
    """Requests the measurements since the last `Cut`; answered by `Samples`."""


@dataclass(frozen=True)
class Samples:
    """Measurements, one for each statement.  starts: seconds of the host's monotonic clock.  took: seconds."""

    writes: npt.NDArray[np.int8]
    starts: Floats
    took: Floats
    error: str = ""

    @staticmethod
    def joined(parts: list[Samples]) -> Samples:
        return Samples(np.concatenate([p.writes for p in parts]), np.concatenate([p.starts for p in parts]),
                       np.concatenate([p.took for p in parts]))


MESSAGES = Codec(Setup, ClientProfile, Cut, Samples)


def send_message(pipe: Connection, message: object) -> None:
    pipe.send_bytes(MESSAGES.encode(message))


def receive_message(pipe: Connection) -> Any:
    return MESSAGES.decode(pipe.recv_bytes())


# ---------------------------------------------------------------- the two libraries
class Library(Protocol):
    name: str

    def read(self, story: int) -> Any: ...

    def vote(self, user: int, story: int) -> Any: ...


class PyMySql:
    """PyMySQL, with text statements."""

    name = "PyMySQL, text"

    def __init__(self, port: int):
        import pymysql

        connection = pymysql.connect(host="127.0.0.1", port=port, user="demo", autocommit=True)
        self._cursor = connection.cursor()
        self._read, self._vote = READ.format("%s"), VOTE.format("%s")

    def read(self, story: int) -> Any:
        self._cursor.execute(self._read, (story,))
        return self._cursor.fetchall()

    def vote(self, user: int, story: int) -> Any:
        self._cursor.execute(self._vote, (user, story))


class Connector:
    """mysql-connector, with statements that are prepared on the server."""

    name = "mysql-connector, prepared"

    def __init__(self, port: int):
        import mysql.connector

        # The attribute keeps the connection alive: its cursors hold it only weakly.
        self._connection = mysql.connector.connect(host="127.0.0.1", port=port, user="demo", autocommit=True)
        self._reads, self._votes = (self._connection.cursor(prepared=True) for _ in range(2))
        self._read, self._vote = READ.format("?"), VOTE.format("?")

    def read(self, story: int) -> Any:
        self._reads.execute(self._read, (story,))
        return self._reads.fetchall()

    def vote(self, user: int, story: int) -> Any:
        self._votes.execute(self._vote, (user, story))


LIBRARIES = (PyMySql, Connector)


# ---------------------------------------------------------------- the process
@dataclass
class Draws:
    """Draws stories by popularity, DRAWN at a time."""

    rng: np.random.Generator
    votes: Ints
    _ready: list[int] = field(default_factory=list)

    def profile(self, stories: Ints | None, once: bool) -> None:
        self._ids = np.arange(1, len(self.votes) + 1) if stories is None else stories
        self._once = once
        if once:
            self._ready = self._ids[::-1].tolist()
            return
        weights = np.cumsum(self.votes[self._ids - 1])
        self._weights = weights / weights[-1]
        self._ready.clear()

    def next(self) -> int | None:
        """Return the next story, or None if each was used once."""
        if not self._ready:
            if self._once:
                return None
            at = np.searchsorted(self._weights, self.rng.random(DRAWN), side="right")
            self._ready = self._ids[at].tolist()
        return self._ready.pop()


class LoadClient:
    def __init__(self, pipe: Connection, setup: Setup):
        self._pipe = pipe
        self._library: Library = LIBRARIES[setup.number % len(LIBRARIES)](setup.port)
        rng = setup.size.rng(6, setup.number)
        self._coins = rng.random(DRAWN).tolist()
        self._draws = Draws(rng, votes_of_stories(setup.size))
        self._user = (setup.number + 1) * USERS_EACH
        self._profile: ClientProfile | None = None
        self._clear()

    def _clear(self) -> None:
        self._writes, self._starts, self._took = array("b"), array("d"), array("d")

    def run(self) -> None:
        """Obey messages and run statements until the demo closes the pipe, or a statement fails."""
        send_message(self._pipe, READY)
        while True:
            while self._profile is None or self._pipe.poll():
                self._obey(receive_message(self._pipe))
            try:
                self._statements(self._profile.writes)
            except Exception as e:
                send_message(self._pipe, self._samples(f"{self._library.name}: {type(e).__name__}: {e}"))
                return

    def _obey(self, message: Any) -> None:
        if isinstance(message, Cut):
            send_message(self._pipe, self._samples())
            self._clear()
            return
        self._profile = message
        if message is not None:
            self._draws.profile(message.stories, message.once)

    def _samples(self, error: str = "") -> Samples:
        return Samples(np.array(self._writes, np.int8), np.array(self._starts), np.array(self._took), error)

    def _statements(self, writes: float) -> None:
        clock, library, draws = time.monotonic, self._library, self._draws
        for _ in range(LOOK_EVERY):
            self._user += 1
            is_write = self._coins[self._user % DRAWN] < writes
            story = draws.next()
            if story is None:
                self._profile = None
                return
            started = clock()
            if is_write:
                library.vote(self._user, story)
            else:
                library.read(story)
            self._took.append(clock() - started)
            self._starts.append(started)
            self._writes.append(is_write)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo decides when its clients end
    pipe = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError, ConnectionError):  # the demo closed the pipe
        LoadClient(pipe, receive_message(pipe)).run()


if __name__ == "__main__":
    from noria.demo.clients import main as run  # messages must have this module's real name, not __main__

    run()
