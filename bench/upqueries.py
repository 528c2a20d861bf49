"""Messages of one upquery through two exchanges, by the number of workers, in the simulator of `tests/dataflow`.

The view karma counts the votes of a user's stories.  Its key is the author, and it joins stories and votes by story.
Stories and votes are sharded by their own ids.  So a miss requests the author's stories from all workers, and each of
these requests their votes from all workers.  For comparison it prints n + n², the requests of a design in which each
worker asks all others at each exchange.

    python bench/upqueries.py [--most 16]
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dataflow.simulator import Cluster
from noria.core.plain_symbols import PlainSymbols
from noria.dataflow.messages.peer_messages import RowsReply, RowsRequest
from reference.table_views import TableViews
from sql.catalogs import DictCatalog

TABLES = ("CREATE TABLE stories (id INT PRIMARY KEY, author INT)",
          "CREATE TABLE votes (id INT PRIMARY KEY, story INT)")
KARMA = ("CREATE VIEW karma AS SELECT s.author, COUNT(*) AS n FROM stories s JOIN votes v ON v.story = s.id "
         "WHERE s.author = ? GROUP BY s.author")


def messages(workers: int, stories: int) -> tuple[int, int]:
    """Return the numbers of requests and answers for the first read of an author with `stories` stories."""
    catalog = DictCatalog()
    for text in TABLES:
        catalog.run(text)
    (command,) = catalog.run(KARMA)
    rng = random.Random(1)
    cluster = Cluster(list(catalog.tables.values()), [command.view], workers, rng, TableViews, PlainSymbols)
    for table, rows in (("stories", [(i, i % 2) for i in range(2 * stories)]),
                        ("votes", [(i, i % (2 * stories)) for i in range(8 * stories)])):
        for row in rows:
            cluster.insert(table, row)
    cluster.drain()
    cluster.sent.clear()
    rig = cluster.rigs[0]
    key = rig.random_key(rng, command.view)
    key[0, 0] = 1
    cluster.read(command.view, cluster.rigs[cluster.owner(command.view, rig, key)], key, lambda rows, ordinal: None)
    cluster.drain()
    return cluster.sent[RowsRequest], cluster.sent[RowsReply]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--most", type=int, default=16)
    parser.add_argument("--stories", type=int, default=100, help="of the author that is read")
    options = parser.parse_args()
    n = 2
    while n <= options.most:
        requests, answers = messages(n, options.stories)
        print(f"{n:3d} workers  {requests:6d} requests  {answers:6d} answers  n + n² = {n + n * n}")
        n *= 2


if __name__ == "__main__":
    main()
