"""Shared memory of several workers, read by an application: each key is found at its worker."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import noria
from noria.client.attached import SharedView
from noria.client.spread_view import SpreadView
from noria.core.errors import SqlError
from noria.views.reader import attach


def test_attached_views_of_three_workers(tmp_path: Path) -> None:
    with noria.open(tmp_path / "db", workers=3) as db:
        db.sql("CREATE TABLE votes (id INT PRIMARY KEY, story INT, name VARCHAR(20))")
        db.sql("CREATE VIEW counted AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story")
        db.sql("CREATE VIEW named AS SELECT id FROM votes WHERE name = ?")
        db.sql("CREATE VIEW total AS SELECT COUNT(*) AS n FROM votes")
        db.table("votes").insert(pa.table({"id": range(60), "story": [i % 7 for i in range(60)],
                                     "name": ["aÉ"[i % 2] * (i % 3 + 1) for i in range(60)]}))
        counted, named, total = (db.view(v).attach() for v in ("counted", "named", "total"))
        for _ in range(2):
            for story in range(7):
                assert counted.lookup(story) == [(story, len(range(story, 60, 7)))]
            assert counted.lookup(99) == []
            assert sorted(named.lookup("éé")) == [(i,) for i in range(60) if i % 2 and i % 3 == 1]
            assert total.lookup() == [(60,)]
        assert (counted.misses, named.misses) == (8, 1)
        many = counted.lookup_many([5, 99, 3])
        assert many.to_pylist() == [{"story": 5, "n": 8, "__key": 0}, {"story": 3, "n": 9, "__key": 2}]
        assert counted.misses == 8
        with pytest.raises(SqlError):
            counted.lookup((1, 2))
        db.sql("DROP VIEW named")
        db.sql("CREATE VIEW named AS SELECT id, story FROM votes WHERE name = ?")
        assert sorted(named.lookup("a")) == [(i, i % 7) for i in range(60) if not i % 2 and not i % 3]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("key", ["s1", 1.5, date(2020, 1, 1)])
def test_keys_of_another_type_are_an_error_that_says_so(tmp_path: Path, workers: int, key: object) -> None:
    """Never Arrow's own."""
    with noria.open(tmp_path / "db", workers=workers) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        db.sql("CREATE VIEW v AS SELECT id FROM t WHERE n = ?")
        attached = db.view("v").attach()
        with pytest.raises(SqlError, match="column 'n'"):
            attached.lookup_many([key])
        assert attached.lookup_many([1]).num_rows == 0


def test_a_view_that_was_attached_before_it_was_defined_anew(tmp_path: Path) -> None:
    """Its keys are at the workers that their new type says, also where one worker's memory was read before."""
    with noria.open(tmp_path / "db", workers=3) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT, s VARCHAR(9))")
        db.sql("INSERT INTO t VALUES " + ", ".join(f"({i}, {i}, 's{i}')" for i in range(9)))
        db.sql("CREATE VIEW v AS SELECT id, n FROM t WHERE n = ?")
        assert db.view("v").lookup_many(list(range(9))).num_rows == 9
        memory = [attach(p) for p in db.transport.attachment()["paths"]]
        assert {m.view("v").key_fields[0].name for m in memory} == {"n"}
        db.sql("CREATE OR REPLACE VIEW v AS SELECT id, s FROM t WHERE s = ?")
        keys = [f"s{i}" for i in range(9)]
        assert db.view("v").lookup_many(keys).num_rows == 9
        view = SpreadView([m.view("v") for m in memory], (0,))
        view.refresh()
        assert [f.name for f in (*view.fields, *view.key_fields)] == ["id", "s", "s"] and view.visible == 2
        assert [view.lookup((k,)) for k in keys] == [[(i, k)] for i, k in enumerate(keys)]
        found, missing = view.lookup_many(pa.table({"s": keys}))
        assert found.num_rows == 9 and not missing.any()


def test_memory_that_is_behind_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ended publishes what a view is now when it is back: that may take many looks."""
    with noria.open(tmp_path / "db") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        db.sql("INSERT INTO t VALUES (1, 5)")
        db.sql("CREATE VIEW v AS SELECT id FROM t WHERE n = ?")
        db.view("v").lookup(5)
        looks, found = [0], SharedView._found

        def ahead(view: SharedView) -> dict[str, Any]:
            looks[0] += 1
            about = found(view)
            return {**about, "definition": about["definition"] + (looks[0] < 200)}

        monkeypatch.setattr(SharedView, "_found", ahead)
        monkeypatch.setattr("noria.client.attached.LONGEST_PAUSE_S", 0.0)
        assert db.view("v").attach().lookup(5) == [(1,)] and looks[0] == 200
