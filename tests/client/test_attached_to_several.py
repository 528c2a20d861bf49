"""Shared memory of several workers, read by an application: each key is found at its worker."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import noria
from noria.core.errors import SqlError


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
