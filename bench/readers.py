"""The memory of helper views that only other views use, in Lobsters' program (its natural queries, as in the paper).

The helpers are written in three ways: MATERIALIZED, with a reader from the start; plain; and INTERNAL.  For each, it
reads all queries with `--keys` keys.  Then it prints full views, readers, full nodes of the graph, the memory of those
and of all nodes, and votes a second by one client.  Votes of comments have a comment_id here; the original's views
select them by `story_id IS NULL`, which no vote has.

    python bench/readers.py [--stories 4000] [--votes 60000] [--keys 200]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import noria
from noria.client.api import Database
from noria.dataflow.messages.packets import Inspect
from noria.demo import lobsters

TABLES = (
    "users (id INT PRIMARY KEY, username VARCHAR(50) NOT NULL, KEY (username))",
    "stories (id INT PRIMARY KEY, created_at DATETIME, user_id INT NOT NULL, url VARCHAR(250), "
    "title VARCHAR(150), short_id VARCHAR(6) NOT NULL, is_expired TINYINT NOT NULL DEFAULT 0, merged_story_id INT, "
    "KEY (short_id))",
    "comments (id INT PRIMARY KEY, created_at DATETIME, short_id VARCHAR(10) NOT NULL, story_id INT NOT NULL, "
    "user_id INT NOT NULL, parent_comment_id INT, is_deleted TINYINT NOT NULL DEFAULT 0, comment TEXT)",
    "votes (id INT PRIMARY KEY AUTO_INCREMENT, user_id INT NOT NULL, story_id INT NOT NULL, comment_id INT, "
    "vote TINYINT NOT NULL)",
    "tags (id INT PRIMARY KEY, tag VARCHAR(25) NOT NULL, hotness_mod DOUBLE, inactive TINYINT NOT NULL DEFAULT 0)",
    "taggings (id INT PRIMARY KEY, story_id INT NOT NULL, tag_id INT NOT NULL)",
    "tag_filters (id INT PRIMARY KEY, user_id INT NOT NULL, tag_id INT NOT NULL)",
    "hidden_stories (id INT PRIMARY KEY, user_id INT NOT NULL, story_id INT NOT NULL)",
    "saved_stories (id INT PRIMARY KEY, user_id INT NOT NULL, story_id INT NOT NULL)",
    "suggested_titles (id INT PRIMARY KEY, story_id INT NOT NULL, title VARCHAR(150))",
    "suggested_taggings (id INT PRIMARY KEY, story_id INT NOT NULL, tag_id INT NOT NULL)",
    "read_ribbons (id INT PRIMARY KEY, user_id INT NOT NULL, story_id INT NOT NULL, updated_at DATETIME)",
    "hats (id INT PRIMARY KEY, user_id INT NOT NULL, hat VARCHAR(50))",
    "keystores (`key` VARCHAR(50) PRIMARY KEY, value BIGINT)",
)
_VOTES = "COUNT(*) AS votes FROM votes WHERE vote = {} AND comment_id IS {}NULL GROUP BY {}"
HELPERS = {
    "tag_score": "SELECT taggings.story_id AS id, SUM(tags.hotness_mod) AS score FROM taggings "
                 "JOIN tags ON tags.id = taggings.tag_id GROUP BY taggings.story_id",
    "comment_ups": f"SELECT comment_id AS id, {_VOTES.format(1, 'NOT ', 'comment_id')}",
    "comment_downs": f"SELECT comment_id AS id, {_VOTES.format(0, 'NOT ', 'comment_id')}",
    "story_ups": f"SELECT story_id AS id, {_VOTES.format(1, '', 'story_id')}",
    "story_downs": f"SELECT story_id AS id, {_VOTES.format(0, '', 'story_id')}",
    "comment_score": "SELECT id, SUM(votes) AS score FROM (SELECT id, votes FROM comment_ups UNION ALL "
                     "SELECT id, 0 - votes FROM comment_downs) AS v GROUP BY id",
    "story_score": "SELECT id, SUM(votes) AS score FROM (SELECT id, votes FROM story_ups UNION ALL "
                   "SELECT id, 0 - votes FROM story_downs) AS v GROUP BY id",
    "comment_with_votes": "SELECT comments.*, u.votes AS ups, d.votes AS downs, u.votes - d.votes AS score "
                          "FROM comments LEFT JOIN comment_ups u ON u.id = comments.id "
                          "LEFT JOIN comment_downs d ON d.id = comments.id",
    "story_with_votes": "SELECT stories.*, u.votes AS ups, d.votes AS downs, u.votes - d.votes AS score "
                        "FROM stories LEFT JOIN story_ups u ON u.id = stories.id "
                        "LEFT JOIN story_downs d ON d.id = stories.id",
    "non_author_comments": "SELECT comments.id, comments.story_id FROM comments JOIN stories "
                           "ON stories.id = comments.story_id WHERE comments.user_id <> stories.user_id",
    "story_comment_score": "SELECT n.story_id AS id, SUM(c.score) AS score FROM non_author_comments n "
                           "JOIN comment_score c ON c.id = n.id GROUP BY n.story_id",
    "merged_story_score": "SELECT stories.merged_story_id AS id, SUM(s.score) AS score FROM stories "
                          "JOIN story_score s ON s.id = stories.id GROUP BY stories.merged_story_id",
    "hotness_components": "SELECT id, score FROM tag_score UNION ALL SELECT id, score FROM story_score UNION ALL "
                          "SELECT id, score FROM merged_story_score UNION ALL "
                          "SELECT id, score FROM story_comment_score",
    "hotness": "SELECT id, SUM(score) AS hotness FROM hotness_components GROUP BY id",
    "frontpage_ids": "SELECT id, hotness FROM hotness ORDER BY hotness DESC LIMIT 51",
    "comments_of_story": "SELECT story_id AS id, COUNT(*) AS n FROM comments GROUP BY story_id",
    "comments_of_user": "SELECT user_id AS id, COUNT(*) AS n FROM comments GROUP BY user_id",
    "stories_of_user": "SELECT user_id AS id, COUNT(*) AS n FROM stories GROUP BY user_id",
    "comment_karma": "SELECT comments.user_id AS id, SUM(c.score) AS karma FROM comments "
                     "JOIN comment_score c ON c.id = comments.id GROUP BY comments.user_id",
    "story_karma": "SELECT stories.user_id AS id, SUM(s.score) AS karma FROM stories "
                   "JOIN story_score s ON s.id = stories.id GROUP BY stories.user_id",
    "user_karma": "SELECT users.id, c.karma + s.karma AS karma FROM users LEFT JOIN comment_karma c ON c.id = users.id "
                  "LEFT JOIN story_karma s ON s.id = users.id",
    "user_stats": "SELECT users.id, c.n AS comments, s.n AS stories FROM users LEFT JOIN comments_of_user c "
                  "ON c.id = users.id LEFT JOIN stories_of_user s ON s.id = users.id",
    "good_comments": "SELECT id, story_id, user_id, parent_comment_id, created_at FROM comment_with_votes "
                     "WHERE is_deleted = 0",
    "heads": "SELECT stories.user_id AS reader, g.id, g.story_id, g.user_id, g.created_at FROM good_comments g "
             "JOIN stories ON stories.id = g.story_id WHERE g.parent_comment_id IS NULL",
    "tails": "SELECT p.user_id AS reader, g.id, g.story_id, g.user_id, g.created_at FROM good_comments g "
             "JOIN comments p ON p.id = g.parent_comment_id",
    "replies": "SELECT reader, id, story_id, user_id, created_at FROM heads UNION ALL "
               "SELECT reader, id, story_id, user_id, created_at FROM tails",
    "notifications": "SELECT r.user_id AS id, COUNT(*) AS n FROM read_ribbons r JOIN replies x "
                     "ON x.reader = r.user_id AND x.story_id = r.story_id "
                     "WHERE x.user_id <> r.user_id AND x.created_at > r.updated_at GROUP BY r.user_id",
}
STORY, STORY_ID, USER, COMMENT, TAG = range(5)  # the meaning of a parameter
QUERIES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("SELECT 1 AS one FROM users WHERE username = ?", (USER,)), ("SELECT * FROM users WHERE id = ?", (USER,)),
    ("SELECT n FROM notifications WHERE id = ?", (USER,)), ("SELECT * FROM keystores WHERE `key` = ?", (USER,)),
    ("SELECT * FROM frontpage_ids", ()), ("SELECT id FROM stories ORDER BY id DESC LIMIT 51", ()),
    ("SELECT * FROM story_with_votes WHERE id = ? AND is_expired = 0 AND merged_story_id IS NULL", (STORY,)),
    ("SELECT hotness FROM hotness WHERE id = ?", (STORY,)), ("SELECT n FROM comments_of_story WHERE id = ?", (STORY,)),
    ("SELECT * FROM story_with_votes WHERE short_id = ?", (STORY_ID,)),
    ("SELECT * FROM story_with_votes WHERE merged_story_id = ?", (STORY,)),
    ("SELECT * FROM tag_filters WHERE user_id = ?", (USER,)), ("SELECT * FROM taggings WHERE story_id = ?", (STORY,)),
    ("SELECT * FROM suggested_titles WHERE story_id = ?", (STORY,)),
    ("SELECT * FROM suggested_taggings WHERE story_id = ?", (STORY,)), ("SELECT * FROM tags WHERE id = ?", (TAG,)),
    ("SELECT * FROM votes WHERE user_id = ? AND story_id = ? AND comment_id IS NULL", (USER, STORY)),
    ("SELECT * FROM votes WHERE user_id = ? AND comment_id = ?", (USER, COMMENT)),
    ("SELECT 1 AS one FROM hidden_stories WHERE user_id = ? AND story_id = ?", (USER, STORY)),
    ("SELECT * FROM saved_stories WHERE user_id = ? AND story_id = ?", (USER, STORY)),
    ("SELECT * FROM read_ribbons WHERE user_id = ? AND story_id = ?", (USER, STORY)),
    ("SELECT * FROM comment_with_votes WHERE story_id = ? ORDER BY score DESC", (STORY,)),
    ("SELECT * FROM comment_with_votes WHERE id = ?", (COMMENT,)),
    ("SELECT id FROM comments ORDER BY id DESC LIMIT 40", ()),
    ("SELECT * FROM user_stats WHERE id = ?", (USER,)), ("SELECT karma FROM user_karma WHERE id = ?", (USER,)),
    ("SELECT tags.id, COUNT(*) AS n FROM taggings JOIN tags ON tags.id = taggings.tag_id JOIN stories "
     "ON stories.id = taggings.story_id WHERE stories.user_id = ? GROUP BY tags.id ORDER BY n DESC LIMIT 1", (USER,)),
    ("SELECT 1 AS one FROM hats WHERE user_id = ?", (USER,)), ("SELECT 1 AS one FROM stories WHERE short_id = ?",
                                                              (STORY_ID,)),
    ("SELECT 1 AS one FROM comments WHERE short_id = ?", (COMMENT,)),
    ("SELECT * FROM tags WHERE tag IN ('tag1', 'tag2')", ()), ("SELECT score FROM story_score WHERE id = ?", (STORY,)),
    ("SELECT score FROM comment_score WHERE id = ?", (COMMENT,)), ("SELECT * FROM replies WHERE reader = ?", (USER,)),
    ("SELECT * FROM comments WHERE id = ?", (COMMENT,)), ("SELECT * FROM stories WHERE id = ?", (STORY,)),
)


def fill(db: Database, size: lobsters.Size, comments: int) -> None:
    """Insert the rows of all tables."""
    rng, users, stories = np.random.default_rng(1), size.users, size.stories

    def of_user(n: int) -> list[int]:
        return rng.integers(1, users + 1, n).tolist()

    def of_story(n: int) -> list[int]:
        return rng.integers(1, stories + 1, n).tolist()

    at = "2018-10-08 12:00:00"
    db.table("users").insert({"id": list(range(1, users + 1)), "username": [f"user{i}" for i in range(1, users + 1)]})
    ids = list(range(1, stories + 1))
    db.table("stories").insert({
        "id": ids, "created_at": [at] * stories, "user_id": of_user(stories), "url": [f"http://a/{i}" for i in ids],
        "title": [f"a story of some length, number {i}" for i in ids], "short_id": [f"{i:06x}" for i in ids],
        "merged_story_id": [i - 1 if i % 100 == 0 else None for i in ids]})
    ids, parents = list(range(1, comments + 1)), rng.integers(1, comments + 1, comments).tolist()
    db.table("comments").insert({
        "id": ids, "created_at": [at] * comments, "short_id": [f"c{i}" for i in ids], "story_id": of_story(comments),
        "user_id": of_user(comments), "parent_comment_id": [p if p < i and i % 2 else None
                                                            for i, p in zip(ids, parents, strict=True)],
        "comment": ["words that somebody wrote about it"] * comments})
    votes = lobsters.votes(size, 0, 1)
    n = len(votes.users)
    db.table("votes").insert({"user_id": votes.users, "story_id": votes.stories, "vote": (rng.random(n) < 0.9) * 1})
    half = n // 2
    db.table("votes").insert({"user_id": of_user(half), "story_id": of_story(half), "vote": [1] * half,
                              "comment_id": rng.integers(1, comments + 1, half).tolist()})
    db.table("tags").insert({"id": list(range(1, 21)), "tag": [f"tag{i}" for i in range(1, 21)],
                             "hotness_mod": [0.25] * 20})
    ids = list(range(1, 2 * stories + 1))
    db.table("taggings").insert({"id": ids, "story_id": of_story(len(ids)), "tag_id": [i % 20 + 1 for i in ids]})
    db.table("read_ribbons").insert({"id": ids, "user_id": of_user(len(ids)), "story_id": of_story(len(ids)),
                                     "updated_at": ["2018-01-01 00:00:00"] * len(ids)})


def key(rng: np.random.Generator, kind: int, size: lobsters.Size, comments: int) -> Any:
    most = {STORY: size.stories, STORY_ID: size.stories, USER: size.users, COMMENT: comments, TAG: 20}[kind]
    n = int(rng.integers(1, most + 1))
    return f"{n:06x}" if kind == STORY_ID else n


def run(helpers: str, size: lobsters.Size, comments: int, keys: int) -> str:
    """Measure one way of writing the helpers: CREATE `helpers` VIEW.  Return its line."""
    rng = np.random.default_rng(2)
    with tempfile.TemporaryDirectory() as directory, noria.open(Path(directory) / "data") as db:
        for table in TABLES:
            db.sql(f"CREATE TABLE {table}")
        fill(db, size, comments)
        for name, text in HELPERS.items():
            db.sql(f"CREATE {helpers} VIEW {name} AS {text}")
        for i, (text, _) in enumerate(QUERIES):
            db.sql(f"CREATE VIEW query{i} AS {text}")
        for i, (text, kinds) in enumerate(QUERIES):
            as_text = "username" in text or "`key`" in text or "comments WHERE short_id" in text
            for _ in range(keys if kinds else 1):
                asked = tuple(key(rng, k, size, comments) for k in kinds)
                db.view(f"query{i}").lookup(tuple(map(str, asked)) if as_text else asked)
        started, written = time.monotonic(), 0
        while time.monotonic() < started + 3:
            db.sql("INSERT INTO votes (user_id, story_id, comment_id, vote) VALUES (?, ?, ?, 1)",
                   [key(rng, USER, size, comments), key(rng, STORY, size, comments),
                    key(rng, COMMENT, size, comments) if written % 2 else None])
            written += 1
        took = time.monotonic() - started
        transport: Any = db.transport
        graph = transport.run(transport.executor.ask(Inspect(0, "graph")))
        rows = db.sql("SHOW NORIA VIEWS").rows
        full = [d for d in graph if d["state"] == "full"]
        return (f"| {helpers or 'plain'} | {sum(r[3] == 'full' for r in rows)} | {sum(r[3] != 'none' for r in rows)} | "
                f"{len(full)} of {len(graph)} | {sum(d['bytes'] for d in full) / 2**20:.1f} | "
                f"{sum(d['bytes'] for d in graph) / 2**20:.1f} | {written / took:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stories", type=int, default=4_000)
    parser.add_argument("--votes", type=int, default=60_000)
    parser.add_argument("--keys", type=int, default=200)
    options = parser.parse_args()
    size = lobsters.Size(options.stories, options.stories // 4, options.votes)
    print("| helpers | full views | readers | full nodes | MiB full | MiB in all | votes/s |")
    print("|---|---|---|---|---|---|---|")
    for helpers in ("MATERIALIZED", "", "INTERNAL"):
        print(run(helpers, size, 3 * options.stories, options.keys), flush=True)


if __name__ == "__main__":
    main()
