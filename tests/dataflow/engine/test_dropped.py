"""States that a dropped view shared with others remain, without the keys that no view keeps complete any more."""

from __future__ import annotations

import numpy as np

from dataflow.engine_rig import Rig
from noria.dataflow.inspect.validate import validate
from sql.catalogs import DictCatalog

TABLES = ("CREATE TABLE votes (id INT PRIMARY KEY, story INT, author INT, kind INT)",
          "CREATE TABLE stories (id INT PRIMARY KEY, topic INT)")
JOINED = ("CREATE VIEW {} AS SELECT c.story, c.author, c.n, s.topic FROM (SELECT story, author, COUNT(*) AS n FROM "
          "(SELECT story, author, kind, COUNT(*) AS m FROM votes GROUP BY story, author, kind) AS k "
          "GROUP BY story, author) AS c JOIN stories AS s ON s.id = c.story WHERE {} = ?")


def test_keys_that_only_a_dropped_view_pulled_are_missing() -> None:
    """The view by topic pulls the counts by story; the other view only looks them up by story, and pulls by author."""
    catalog = DictCatalog()
    for text in TABLES:
        catalog.run(text)
    by_topic, by_author = (catalog.run(JOINED.format(name, by))[0].view
                           for name, by in (("by_topic", "s.topic"), ("by_author", "c.author")))
    rig = Rig(list(catalog.tables.values()), [by_topic, by_author])
    vote = (1, 1, 5, 3)
    rig.write([("votes", vote, 1), ("stories", (1, 7), 1)])
    assert rig.engine.read("by_topic", np.array([[7]]))[0].rows() == [(1, 5, 1, 7)]
    rig.drop_view("by_topic")
    rig.write([("votes", vote, -1)])
    validate(rig.engine)
    assert rig.engine.read("by_author", np.array([[5]]))[0].rows() == []
    validate(rig.engine)
