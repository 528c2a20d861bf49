"""EXPLAIN, EXPLAIN ANALYZE and SHOW NORIA over the embedded runtime: what they say is what was done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import mysql.connector
import pytest

import workers
from e2e.local import LocalServer, views_at_once
from noria.dataflow.inspect.render import saved, size

TABLES = (
    "CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(20))",
    "CREATE TABLE votes (story INT, user INT, PRIMARY KEY (story, user))",
    "CREATE VIEW counted AS SELECT id, title, n FROM stories JOIN"
    " (SELECT story, COUNT(*) AS n FROM votes GROUP BY story) q ON q.story = id WHERE id = ?",
    "INSERT INTO stories VALUES (1, 1, 'one'), (2, 1, 'two'), (3, 2, 'three')",
    "INSERT INTO votes VALUES (1, 1), (1, 2), (2, 1)",
)

of_one = pytest.mark.one_worker("the plan is that of one: of several it has exchanges")


class Client:
    def __init__(self, directory: Path):
        self.server = LocalServer(directory)
        self.connection = self.server.connect()

    def rows(self, text: str) -> list[dict[str, Any]]:
        with self.connection.cursor() as cursor:
            cursor.execute(text)
            names = [d[0] for d in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def prepared(self, text: str, values: tuple[Any, ...]) -> None:
        with closing(mysql.connector.connect(host="127.0.0.1", port=self.server.mysql.address[1], user="root",
                                             ssl_disabled=True)) as connection:
            connection.cursor(prepared=True).execute(text, values)

    def lines(self, text: str) -> list[str]:
        return [r["EXPLAIN"] for r in self.rows(text)]

    def status(self) -> dict[str, str]:
        return {r["Variable_name"]: r["Value"] for r in self.rows("SHOW NORIA STATUS")}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    made = Client(tmp_path / "data")
    for text in TABLES:
        made.rows(text)
    yield made
    made.connection.close()
    made.server.close()


@of_one
def test_a_miss_is_analyzed_node_by_node_and_then_it_is_a_hit(client: Client) -> None:
    lines = client.lines("EXPLAIN ANALYZE SELECT * FROM counted WHERE id = 1")
    assert lines[0] == "answered by the view counted, looked up by (id)"
    assert "1 key asked of the worker, 1 row found; missing on the way: 3 keys, pull depth 2" in lines[1]
    assert any("table votes: 1 read of 1 key, 2 rows" in line and line.endswith(" ms") for line in lines)
    assert any("aggregate count_star(*) by story | from n0 | partial: story found by n0's story | indexed by story | "
               "1 row" in line for line in lines)
    lines = client.lines("EXPLAIN ANALYZE SELECT * FROM counted WHERE id = 1")
    assert "1 key present in shared memory, 1 row found" in lines[1]


def test_reads_of_several_workers_are_analyzed(tmp_path: Path) -> None:
    with workers.by_default(2):
        client = Client(tmp_path / "data")
    views_at_once(client.server.embedded)
    for text in TABLES:
        client.rows(text)
    for key, rows in ((1, 1), (2, 1), (9, 0)):  # pulls cross an exchange: the read is run again when others answered
        told = client.lines(f"EXPLAIN ANALYZE SELECT * FROM counted WHERE id = {key}")[1]
        assert f"1 key asked of the worker, {rows} row" in told and "missing on the way: 0 keys" not in told
    told = client.lines("EXPLAIN ANALYZE SELECT id, title FROM stories WHERE id > 1")[1]
    assert ": a range asked of the worker, 2 rows found" in told
    client.connection.close()
    client.server.close()


@of_one
@pytest.mark.parametrize("cut", ["", " ORDER BY id LIMIT 1", " ORDER BY id DESC LIMIT 2"])
def test_a_range_is_analyzed(client: Client, cut: str) -> None:
    views_at_once(client.server.embedded)
    text = f"SELECT id, title FROM stories WHERE id > 1{cut}"
    rows = {"": 2, " ORDER BY id LIMIT 1": 1, " ORDER BY id DESC LIMIT 2": 2}[cut]
    first, again = (client.lines(f"EXPLAIN ANALYZE {text}")[1 + bool(cut)] for _ in range(2))
    assert f": a range asked of the worker, {rows} row" in first and "missing on the way: 0 keys" not in first
    assert "missing on the way: 0 keys" in again
    assert client.lines("EXPLAIN ANALYZE SELECT id, title FROM stories WHERE id > 3 AND id < 2")[1] == (
        "ran without a lookup: no value lies in the range")


def test_what_is_explained_is_what_is_run(client: Client) -> None:
    """Also where a view that fits better was made after the text's shape was learnt."""
    views_at_once(client.server.embedded)
    text = "SELECT title FROM stories WHERE author = 1 AND id > 1"
    client.rows(text)
    client.prepared("SELECT title FROM stories WHERE author = ? AND id > 1", (1,))
    before = {r["View"]: r["Lookups"] for r in client.rows("SHOW NORIA VIEWS")}
    explained = client.lines(f"EXPLAIN {text};")[0].split()[5].rstrip(",")
    client.rows(text)
    after = {r["View"]: r["Lookups"] for r in client.rows("SHOW NORIA VIEWS")}
    assert len(after) == 3 and [v for v in after if after[v] > before[v]] == [explained]


@of_one
def test_a_plan_says_why_it_is_partial_by_the_names_of_columns(client: Client) -> None:
    views_at_once(client.server.embedded)
    text = "SELECT title FROM stories WHERE author = 1 AND id < 9 ORDER BY id DESC LIMIT 2"
    client.rows(text)
    lines = client.lines(f"EXPLAIN {text}")
    assert lines[0].endswith(", looked up by (author)")
    assert lines[1] == "then, over the rows found: filter lt(id, 9); order by id desc; limit 2"
    assert any("reader adhoc_1 by author | " in line and "| partial: author found by n2's author | indexed by author"
               in line for line in lines)
    lines = client.lines("EXPLAIN SELECT author, COUNT(*) AS n FROM stories WHERE id IN (1, 3) GROUP BY author")
    assert lines[1] == ("then, over the rows found: aggregate sum(count_star(*)) by author; project author as author, "
                                       "cast(coalesce(sum(#2), 0)) as n")
    (view,) = client.rows("SHOW NORIA VIEWS LIKE 'adhoc_1'")
    assert (view["Key"], view["State"], view["Why"]) == ("author", "partial", "author found by n2's author")


@of_one
def test_what_no_view_answers_is_foreseen_and_nothing_is_made(client: Client) -> None:
    text = "SELECT title FROM stories WHERE author = 1 ORDER BY id"
    graph = client.rows("SHOW NORIA GRAPH")
    asked_first = client.lines(f"EXPLAIN {text}")
    assert asked_first == [
        "answered by a one-shot that reads 3 rows and keeps nothing; when it is asked again, by an ad-hoc view, looked "
        "up by (author), which would keep:",
        "then, over the rows found: order by id", "table stories | there", "project title, author, id | new",
        "reader adhoc_1 by author | new | partial: empty until it is read"]
    assert client.lines(f"EXPLAIN {text}") == asked_first, "explaining is not asking"
    ran = client.lines(f"EXPLAIN ANALYZE {text}")
    assert ran[0].startswith("answered by a one-shot") and ran[2].endswith(" ms: 2 rows")
    again = client.lines(f"EXPLAIN {text}")
    assert "meanwhile an ad-hoc view is made for it, looked up by (author)" in again[0] and again[1:] == asked_first[1:]
    views_at_once(client.server.embedded)
    at_once = client.lines("EXPLAIN SELECT author, COUNT(*) FROM stories GROUP BY author")
    assert at_once[0].startswith("answered by an ad-hoc view, made when it is asked, looked up by ()")
    assert at_once[-1].split(" | ")[2].startswith("full: it is read without a key; filled from 3 rows")
    assert client.status()["adhoc_views"] == "0" and client.rows("SHOW NORIA GRAPH") == graph


def test_what_must_be_no_view_is_foreseen(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.core.limits.ADHOC_FULL_ROWS", 2)
    text = "SELECT author, COUNT(*) FROM stories GROUP BY author"
    told = client.lines(f"EXPLAIN {text}")[0]
    assert told.startswith("answered by a one-shot that reads 3 rows and keeps nothing; it must not be a view: ")
    views_at_once(client.server.embedded)
    assert client.lines(f"EXPLAIN {text}")[0].startswith("answered by Spark over a snapshot, not by a view")
    by_key = "EXPLAIN SELECT title FROM stories WHERE author = 1"
    assert client.lines(by_key)[0].startswith("answered by an ad-hoc view, made when it is asked, looked up by (auth")


def test_explain_tells_the_hit_rate(client: Client) -> None:
    for _ in range(3):
        client.rows("SELECT * FROM counted WHERE id = 2")
    last = client.lines("EXPLAIN SELECT * FROM counted WHERE id = 2")[-1]
    assert last.endswith(" lookups were answered from shared memory")


@of_one
def test_what_can_never_be_evicted_is_told_with_the_reason(client: Client) -> None:
    assert client.status()["worker_essential"] == "0"
    views_at_once(client.server.embedded)
    client.rows("SELECT author, COUNT(*) FROM stories GROUP BY author")
    status = client.status()
    told = [v for k, v in status.items() if k.startswith("essential ")]
    assert int(status["worker_essential"]) > 0 and len(told) == 2
    assert any("it is read without a key" in text for text in told)


@of_one
def test_what_is_shared_says_what_it_saves(client: Client) -> None:
    client.rows("CREATE VIEW n AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story")
    client.rows("CREATE VIEW m AS SELECT story, MAX(user) AS m, MIN(user) AS l FROM votes WHERE story = ? "
                "GROUP BY story")
    client.rows("CREATE VIEW narrow AS SELECT title FROM stories WHERE id = ?")
    client.rows("CREATE VIEW wide AS SELECT * FROM stories WHERE id = ?")
    for view in "n", "m":
        client.rows(f"SELECT * FROM {view} WHERE story = 1")
    client.rows("SELECT * FROM wide WHERE id = 1")
    (node,) = [n for n in client.rows("SHOW NORIA GRAPH") if n["Does"].startswith("aggregate")]
    # three views; alone they would have two or three of its four columns
    assert node["Views"] == "counted, m, n"
    assert 0 < node["Saves"] == round(node["Bytes"] * (3 * (2 / 4 + 3 / 4) / 2 - 1))
    (line,) = [t for t in client.lines("EXPLAIN SELECT * FROM m WHERE story = 1") if "one state instead of 2" in t]
    assert line.endswith(f"shared, it saves up to {size(node['Saves'])}") and "shared with counted, n" in line
    (reader,) = [n for n in client.rows("SHOW NORIA GRAPH") if n["Does"].startswith("reader wide")]
    through = f"narrow (1 of 3 columns) | saves up to {size(reader['Bytes'] / 3)} of other readers"
    assert f"read in its rows, too: {through}" in client.lines("EXPLAIN SELECT * FROM wide WHERE id = 1")
    assert reader["Saves"] == 0


def test_what_a_shared_state_saves() -> None:
    assert saved(1000, 1) == 0 and saved(1000, 3) == 2000  # two more of its kind
    assert saved(1000, 2, (0.5, 0.75)) == 250 and saved(1000, 1, (0.5, 0.5)) == 0
    assert saved(1000, 4, (0.5, 0.5)) == 1000 and saved(1000, 0) == 0


@of_one
def test_views_and_nodes_have_their_figures(client: Client) -> None:
    client.rows("SELECT * FROM counted WHERE id = 1")
    client.rows("SELECT * FROM counted WHERE id = 9")
    (view,) = client.rows("SHOW NORIA VIEWS LIKE 'coun%'")
    assert (view["State"], view["Key"], view["Rows"], view["Misses"]) == ("partial", "id", 1, 2)
    client.rows("INSERT INTO votes VALUES (1, 3)")
    nodes = {r["Does"].split()[0]: r for r in client.rows("SHOW NORIA GRAPH")}
    assert nodes["aggregate"]["Rows_in"] == 4 and nodes["aggregate"]["Rows_out"] == 2  # -old +new
    assert nodes["reader"]["Pull_depth"] == 2
