"""Three workers on real stores, driven by packets alone: their answers equal SQLite's, and a read that waits for rows
of other workers delays nobody."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataflow.three_workers import TABLES, VIEWS, WORKERS, Three, opened
from noria.core.statements import Delete, Insert
from noria.dataflow.backfill import backfills, build
from noria.dataflow.engine import lookups
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope, SessionWrites
from noria.dataflow.worker.worker import Worker
from noria.runtime.transactions.read_your_writes import merged_writes
from noria.views.reader import AttachedViews
from sql.catalogs import DictCatalog


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    made = Three(tmp_path, random.Random(1))
    for text in TABLES:
        made.define(text)
    yield made
    for w in made.workers:
        w.close()


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_sqlite(three: Three, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed > 2:
        monkeypatch.setattr(lookups, "LONG_LOOKUP_ROWS", 1)  # more rows are read in slices
    rng = three.rng = random.Random(seed)
    truth = sqlite3.connect(":memory:")
    for text in TABLES:
        truth.execute(text)
    late = list(VIEWS.items())
    for _ in range(150):
        x = rng.random()
        if x < 0.1 and late:
            name, text = late.pop()
            three.define(f"CREATE VIEW {name} AS {text.format('?')}")
        elif x < 0.4:
            table = rng.choice(["stories", "votes"])
            row: tuple[Any, ...] = (rng.randrange(30), rng.randrange(6), rng.choice(["a", "B", "é"]))
            if table == "votes":
                row = (row[0], rng.randrange(30), rng.randrange(6))
            truth.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", row)
            body = packets.Write((Insert(table, (0, 1, 2), (row,), "replace"),))
            assert three.change(three.owner(row[0]), body).results[0].error is None
        elif x < 0.45:
            truth.execute("DELETE FROM votes")
            for w in range(WORKERS):
                assert three.change(w, packets.Write((Delete("votes", None),))).results[0].error is None
        elif x < 0.6 and len(late) < len(VIEWS):
            three.read(rng.choice(sorted(VIEWS.keys() - dict(late).keys())), rng.randrange(8))
        else:
            three.deliver()
    for name, text in late:
        three.define(f"CREATE VIEW {name} AS {text.format('?')}")
    for name, text in VIEWS.items():
        for key in range(7):
            number = three.read(name, key)
            three.rest()
            rows = three.replies[number].rows
            have = sorted(tuple(r[c] for c in rows.column_names[:-1]) for r in rows.to_pylist())
            assert have == sorted(truth.execute(text.format(key)).fetchall(), key=str), (name, key)


def test_a_read_that_waits_delays_nobody(three: Three) -> None:
    three.define(f"CREATE VIEW counts AS {VIEWS['counts'].format('?')}")
    three.define("CREATE VIEW story AS SELECT title, id FROM stories WHERE id = ?")
    three.rest()
    first = three.read("counts", 1)
    assert first not in three.replies
    second = three.read("story", 1)
    assert second in three.replies
    three.rest()
    assert first in three.replies


@pytest.mark.parametrize("seed", range(6))
def test_a_frontier_includes_all_effects_of_its_messages(three: Three, seed: int) -> None:
    """A worker whose frontier has reached the recipients' numbers of a session's writes has all effects of the writes.
    Channels break meanwhile, and messages are lost."""
    rng = three.rng = random.Random(seed)
    truth = sqlite3.connect(":memory:")
    for text in TABLES:
        truth.execute(text)
    for name in ("counts", "best"):
        three.define(f"CREATE VIEW {name} AS {VIEWS[name].format('?')}")
    three.define("CREATE VIEW every AS SELECT id, story, user FROM votes")
    three.rest()
    own: SessionWrites = {}
    requests, compared = list[int](), 0
    for n in range(150):
        x = rng.random()
        if x < 0.4:
            table, row = rng.choice(["stories", "votes"]), (rng.randrange(30), rng.randrange(6), rng.randrange(3))
            truth.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", row)
            body = packets.Write((Insert(table, (0, 1, 2), ((*row[:2], str(row[2])) if table == "stories" else row,),
                                         "replace"),))
            w = three.owner(row[0])
            own = merged_writes(own, {w: (n, three.change(w, body).recipients)})
        elif x < 0.5:
            three.read(rng.choice(["counts", "best"]), rng.randrange(6))
        elif x < 0.53:
            three.breaks(*rng.sample(range(WORKERS), 2))
        else:
            three.deliver()
        for w in range(WORKERS):
            last = [(v, number) for v, (_, recipients) in own.items() if v != w
                    for to, number in recipients or () if to == w]
            frontier = three.workers[w].frontier()
            if all(frontier[v] >= number for v, number in last):
                compared += 1
                three.equal_at(w, truth)
            elif n % 50 == 49 and last:
                requests.append(three.inspect(w, "frontier", ",".join(f"{v}:{number}" for v, number in last)))
                for v, _ in last:
                    three.breaks(v, w)
        if n % 50 == 49:
            three.rest()
            assert all(three.replies[number] == packets.Done(number) for number in requests)
    assert compared > 30 and requests


def test_nobody_waits_for_a_lost_message(three: Three) -> None:
    three.define(f"CREATE VIEW counts AS {VIEWS['counts'].format('?')}")
    three.rest()
    for key in range(6):
        three.read("counts", key)  # otherwise no worker receives its votes
    three.rest()
    sent = 0
    for vote in range(6):
        w = three.owner(vote)
        wrote = three.change(w, packets.Write((Insert("votes", (0, 1, 2), ((vote, 3, 0),)),)))
        for to, number in wrote.recipients:
            sent += 1
            request = three.inspect(to, "frontier", f"{w}:{number}")
            three.channels[w, to].clear()
            three.breaks(w, to)
            assert request not in three.replies
            three.rest()
            assert three.replies[request] == packets.Done(request)
    assert sent


@pytest.mark.parametrize("seed", range(6))
def test_a_view_in_use_is_served_while_a_state_above_becomes_full(three: Three, seed: int,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "FIRST_ROWS", 1)
    monkeypatch.setattr(backfills, "MOST_ROWS", 2)
    rng = three.rng = random.Random(seed)
    for w in three.workers:
        w.engine.builds.at_once_rows = 0
    truth = sqlite3.connect(":memory:")
    for text in TABLES:
        truth.execute(text)
    grouped = "SELECT story, COUNT(*) AS n FROM votes GROUP BY story"
    read = f"SELECT s.id, s.author, v.n FROM stories s LEFT JOIN ({grouped}) v ON v.story = s.id WHERE s.id = {{}}"
    late = ["CREATE VIEW authors AS SELECT s.author, COUNT(*) AS n FROM stories s JOIN votes v ON v.story = s.id "
            "GROUP BY s.author HAVING n = ?", f"CREATE VIEW by_count AS {grouped} HAVING n = ?"]
    three.define(f"CREATE VIEW counted AS {read.format('?')}")
    for n in range(300):
        x = rng.random()
        if n > 100 and late and x < 0.03:
            three.define(late.pop())
        elif x < 0.35:
            table = rng.choice(["stories", "votes", "votes", "votes"])
            row = (rng.randrange(30 if table == "votes" else 8), rng.randrange(8), rng.randrange(6))
            truth.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", row)
            values = row if table == "votes" else (*row[:2], "title")
            body = packets.Write((Insert(table, (0, 1, 2), (values,), "replace"),))
            assert three.change(three.owner(row[0]), body).results[0].error is None
        elif x < 0.5:
            three.read("counted", rng.randrange(8))
        elif x < 0.65:
            three.step(rng.randrange(WORKERS), [])
        else:
            three.deliver()
    for text in late:
        three.define(text)
    three.rest()
    for view, text, w in (("counted", read, None), ("by_count", grouped, 0)):  # the latter is filtered later
        for key in range(8):
            number = three.read(view, key, w)
            three.rest()
            rows = three.replies[number].rows
            have = sorted(tuple(r[c] for c in rows.column_names[:-1]) for r in rows.to_pylist())
            assert have == sorted(truth.execute(text.format(key)).fetchall()), (view, key)


def test_a_writer_reads_no_view_of_an_earlier_life(tmp_path: Path) -> None:
    """A restarted worker has no state yet of a full view with many rows, but its earlier life's view is still there."""
    catalog, published = DictCatalog(), str(tmp_path / "views")
    Path(published).mkdir()

    def change(worker: Worker, body: Any, seq: int) -> Any:
        (reply,) = worker.step([Envelope(1, -1, seq, body)])
        assert getattr(reply.body, "error", None) is None
        return reply.body

    catalog.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    (view,) = catalog.run("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a")
    add = packets.Migrate((packets.AddView(view.view),), ())
    worker = opened(tmp_path / "base", 0, 1, published)
    change(worker, packets.Migrate((packets.CreateTable(catalog.tables["t"]),), ()), 1)
    change(worker, packets.Write((Insert("t", (0, 1), tuple((i, i % 2) for i in range(100))),)), 2)
    change(worker, add, 3)
    counts = AttachedViews(published).view("counts")
    assert sorted(counts.lookup(()) or []) == [(0, 50), (1, 50)]
    worker.close()
    worker = opened(tmp_path / "base", 0, 1, published)
    worker.engine.builds.at_once_rows = 10
    change(worker, add, 4)
    assert not worker.engine.ready("counts") and counts.lookup(()), "a session that did not write may read it"
    change(worker, packets.Write((Insert("t", (0, 1), ((100, 1),)),)), 5)
    assert counts.lookup(()) is None
    while worker.idle(1000)[1]:
        pass
    assert sorted(counts.lookup(()) or []) == [(0, 50), (1, 51)]
    worker.close()
