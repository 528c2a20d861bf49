"""Packets that no client should be able to send: each is answered with one packet, an error or a right answer, and the
worker goes on; from time to time every state equals its recomputation.

    FUZZ_WORKER_CASES=600   FUZZ_SEED=… (printed; in CI always the same)
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.fuzz import junk
from chaos.fuzz.embedded import ROWS, Embedded, forget, quick_directory
from noria.core.errors import SqlError
from noria.core.statements import Delete, Insert, Update
from noria.core.types import INT, TEXT, Column, TableDef
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.runtime.link.link import FRONT_END
from noria.runtime.transport import wire
from noria.sql.parse import parse
from seeds import seed

pytestmark = pytest.mark.timeout(0)
CASES = int(os.environ.get("FUZZ_WORKER_CASES", "600"))
SEED = seed("FUZZ_SEED")
MORE_STEPS = 1_000  # that a worker may take for two packets
CHECK_EVERY = 200  # packets between two looks at everything
ANSWERED = {packets.Write: packets.Wrote, packets.Read: packets.Rows, packets.Query: packets.Rows,
            packets.Migrate: packets.Migrated}
STATEMENTS = (
    "INSERT INTO t (id, s, n) VALUES (1000, 'new', 3), (1001, NULL, NULL)", "REPLACE INTO bag VALUES (3, 'v1', '{}')",
    "INSERT INTO t (id, u) VALUES (5, 6) ON DUPLICATE KEY UPDATE n = n + VALUES(u), s = CONCAT(s, 'x')",
    "INSERT IGNORE INTO t (id, day, x) VALUES (6, '2024-03-04', 1.5)",
    "UPDATE t SET n = n + 1, x = x * 2 WHERE id > 5 AND s LIKE 'text%'",
    "UPDATE bag SET v = UPPER(v) WHERE k IN (1, 2)",
    "UPDATE t SET d = d / 3, day = DATE_ADD(day, INTERVAL 1 DAY) WHERE u = 3", "DELETE FROM t WHERE id = 1000",
    "DELETE FROM bag WHERE k = 3 AND j = '{}'", "UPDATE t SET b = 'zz' WHERE COALESCE(n, 3) = 3 OR s IS NULL",
)
NEW_VIEWS = (
    "CREATE VIEW w AS SELECT id, CASE WHEN n > 2 THEN s ELSE 'low' END AS c FROM t WHERE u = ?",
    "CREATE VIEW w AS SELECT k, GROUP_CONCAT(v) AS g FROM bag GROUP BY k",
    "CREATE VIEW w AS SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM bag WHERE bag.k = t.id) AND t.n = ?",
    "CREATE VIEW w AS SELECT id, ROW_NUMBER() OVER (PARTITION BY u ORDER BY n) AS r FROM t WHERE u = ?",
    "CREATE VIEW w AS SELECT k FROM bag UNION SELECT u FROM t",
)


ENDINGS = 25  # of the worker, after which the test stops


def answers(reply: Envelope, asked: Envelope) -> bool:
    """By the number of the change, or of the request if it has one."""
    request = getattr(asked.body, "request", None)
    return reply.seq == asked.seq if asked.seq else type(request) is not int or reply.body.request == request


class Fuzz:
    """Endings of the worker are counted, and it is opened anew: one defect hides no other."""

    def __init__(self, directory: Path, seed: int):
        self._directory, self._opened, self.chance = directory, 0, random.Random(seed)
        self.request = 2**50
        self.answers, self.kinds = collections.Counter[str](), collections.Counter[str]()
        self.bugs, self.endings = collections.Counter[str](), dict[str, str]()
        self._last: list[Any] = []
        self.open()

    def open(self) -> None:
        self._opened += 1
        directory = self._directory / str(self._opened)
        directory.mkdir(mode=0o700)
        self.database = Embedded(directory)
        self.worker, self.seq = self.database.worker, self.database.link.book.changes.last_seq
        self.worker.environment.note = self._note
        self._statements = [parse(text, self.database.program)[0] for text in STATEMENTS]
        self._templates = self._make_templates()

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the test has told what is wrong with it
            self.database.close()
        forget(self._directory / str(self._opened))

    def attempt(self, act: Callable[[], None], number: int) -> None:
        """One case or check; what ends the worker is noted."""
        try:
            act()
        except Exception as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            where = f"{type(e).__name__} in {Path(last.filename).name}:{last.lineno} {last.name}"
            trace = "".join(traceback.format_exception(e))[-2500:]
            self.endings.setdefault(where, f"case {number}: {e}: {self.story()}\n{trace}")
            self.close()
            self.open()

    def _note(self, text: str) -> None:
        """Internal errors by their last line and place."""
        lines = text.strip().splitlines()
        places = [line.strip() for line in lines if line.lstrip().startswith("File ")]
        place = places[-1].split("/")[-1].replace('"', "") if places else ""
        self.bugs[f"{lines[0].split(' in ')[-1].split(' ')[0]} {lines[-1][:90]} @ {place}"] += 1

    def _make_templates(self) -> list[Any]:
        views = list(self.database.program.views())
        keys = {"by_s": [("text 3",), ("TEXT 4",)], "by_n_d": [(1, 1), (2, 2)], "by_day": [(None,)], "totals": [()]}
        reads = [packets.Read(0, v.name, keys.get(v.name, [(i,) for i in range(3)]), limit_ms=2_000) for v in views]
        ranges = [packets.Read(0, "by_range", [], key_range=(3, 30), first=5, limit_ms=2_000)]
        once = [packets.Query(0, v, keys.get(v.name, [(i,) for i in range(3)]), rows=10**6) for v in views]
        by_range = next(v for v in views if v.name == "by_range")
        once.append(packets.Query(0, by_range, (), key_range=(3, 30), first=5, descending=True, rows=10**6))
        columns = (Column("a", INT, False), Column("b", TEXT))
        new = [parse(text, self.database.program)[0] for text in NEW_VIEWS]
        added = [packets.Migrate((packets.AddView(v.view),), (), limit_ms=2_000) for v in new]
        added += [packets.Migrate((packets.CheckView(v.view),), ("CREATE VIEW …",), limit_ms=2_000) for v in new]
        return [
            *[packets.Write((s,)) for s in self._statements], packets.Write(tuple(self._statements[:3])),
            *reads, *ranges, *once, packets.Read(0, "joined", [(i,) for i in range(9)], fill=True), *added,
            packets.Migrate((packets.CreateTable(TableDef("new", columns, (0,), table_id=77)),), ()),
            packets.Migrate((packets.DropTable("new"), packets.DropView("w")), ("CREATE VIEW …",)),
            packets.Rehearse(0, (*[packets.AddView(v.view) for v in new], packets.DropView("joined"))),
            packets.Ingest("t", (("t", ("/nonexistent/a.sst",)),), 3),
            packets.Bootstrap("totals", 3, ("/nonexistent",)), packets.IndexFiles("1.1", ("/nonexistent",)),
            packets.Evict(0, 1000), packets.Evict(0, None), packets.SetLimit(2**28),
            *[packets.Inspect(0, what, "by_s", packets.Read(0, "by_s", [("text 5",)]))
              for what in ("stats", "graph", "explain", "analyze", "table", "validate")],
        ]

    # ------------------------------------------------------------ packets
    def packet(self) -> Any:
        template = self.chance.choice(self._templates)
        for _ in range(self.chance.choice((0, 1, 1, 1, 2, 3))):
            try:
                template = junk.bent(template, self.chance)
            except Exception:  # a type that refuses to exist so
                continue
        return template

    def envelope(self) -> Envelope:
        body = self.packet()
        changes = isinstance(body, packets.Write | packets.Migrate | packets.Ingest)
        self.seq += changes
        self.request += 1
        with contextlib.suppress(Exception):
            if not changes and type(body.request) is int:
                object.__setattr__(body, "request", self.request)
        return Envelope(self.database.config.epoch, FRONT_END, self.seq if changes else 0, body)

    def envelopes(self) -> list[Envelope]:
        """One, or a few that arrive together; as they come out of the wire, or as they are."""
        found: list[Envelope] = []
        while len(found) < self.chance.choice((1, 1, 1, 4)):
            e = self.envelope()
            try:
                [item] = wire.FrameDecoder().feed(wire.encode(e))
            except (TypeError, AttributeError, ValueError):
                self.seq -= e.seq == self.seq and e.seq > 0
                continue
            if isinstance(item, Envelope):
                found.append(item)
        return found

    # ------------------------------------------------------------ one case
    def case(self) -> None:
        sent = self._last = self.envelopes()
        replies = self.worker.step(sent)
        for _ in range(MORE_STEPS):  # what is large, or came to a busy machine, is answered in later turns
            if len(replies) >= len(sent):
                break
            replies += self.worker.step([])
        assert len(replies) == len(sent), f"{len(replies)} replies to {len(sent)} packets"
        for e in sent:  # requests are answered by class, changes first
            want = ANSWERED.get(type(e.body), packets.Done)
            reply = next((r for r in replies if isinstance(r.body, want) and answers(r, e)), None)
            assert reply is not None, f"none of {replies} is an answer to {e.body}"
            replies.remove(reply)
            errors = errors_of(reply.body)
            self.kinds[type(e.body).__name__] += 1
            self.answers[", ".join(sorted({str(x.code) for x in errors})) or "answered"] += 1
        if self.chance.random() < 0.05:
            self.worker.idle(5)

    def check(self) -> None:
        """It still is a database: what is written is read, and every state is what its tables say."""
        self.step(packets.SetLimit(2**30))
        self.step(packets.Write((Delete("t", None), Delete("bag", None))))
        for text in ROWS:
            reply = self.step(packets.Write((parse(text, self.database.program)[0],)))
            assert not errors_of(reply), errors_of(reply)
        for view, key, rows in (("by_s", ("Text 7",), 1), ("joined", (3,), 7), ("by_range", None, 40),
                                ("totals", (), 3)):
            read = packets.Read(0, view, [] if key is None else [key], key_range=(-100, 100) if key is None else None)
            reply = self.step(read)
            assert reply.error is None and reply.rows.num_rows == rows, (view, reply)
        validated = self.step(packets.Inspect(0, "validate"))
        assert validated.error is None, validated.error

    def step(self, body: Any) -> Any:
        changes = isinstance(body, packets.Write)
        self.seq += changes
        [reply] = self.worker.step([Envelope(self.database.config.epoch, FRONT_END, self.seq if changes else 0, body)])
        return reply.body

    def story(self) -> str:
        return "\n".join(repr(e)[:2000] for e in self._last)


def errors_of(body: Any) -> list[SqlError]:
    if isinstance(body, packets.Wrote):
        return [r.error for r in body.results if r.error is not None]
    error = getattr(body, "error", None)
    return [] if error is None else [error]


def test_packets_that_no_client_sends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = quick_directory(tmp_path)
    fuzz, began, number = Fuzz(directory, SEED), time.monotonic(), 0
    try:
        while number < CASES and len(fuzz.endings) < ENDINGS:
            fuzz.attempt(fuzz.case, number)
            number += 1
            if number % CHECK_EVERY == 0 or number == CASES:
                fuzz.attempt(fuzz.check, number)
    finally:
        fuzz.close()
        forget(directory)
        with capfd.disabled():
            print(f"\nworker: FUZZ_SEED={SEED}, {number} cases in {time.monotonic() - began:.0f} s; packets "
                  f"{dict(fuzz.kinds)}; answers {dict(fuzz.answers.most_common(12))}; internal errors:")
            for what, count in fuzz.bugs.most_common(25):
                print(f"  {count:6d} {what}")
    told = "\n\n".join(f"{what}\n{story}" for what, story in fuzz.endings.items())
    assert not fuzz.endings, f"the worker ended; FUZZ_SEED={SEED}:\n" + "\n".join(fuzz.endings) + "\n\n" + told


def test_the_sentinel_of_default_survives_the_wire() -> None:
    insert = Insert("t", (0,), ((object,),))
    [item] = wire.FrameDecoder().feed(wire.encode(Envelope(1, -1, 1, packets.Write((insert, Update("t", (), None))))))
    assert isinstance(item, Envelope) and item.body.statements[0].rows[0][0] is object
