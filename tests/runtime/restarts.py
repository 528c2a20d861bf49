"""A database in this process that is closed and opened again, with saved states."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from noria.client.embedded import EmbeddedTransport

ROWS = 2_100  # more than are built at once
VIEWS = {
    "groups": "SELECT title, COUNT(*) AS n, MAX(author) AS m, MIN(title) AS t, SUM(x) AS s, AVG(likes.user) AS v FROM "
              "posts JOIN likes ON likes.post = posts.id GROUP BY title",
    "joined": "SELECT posts.id, title, user FROM posts JOIN likes ON likes.post = posts.id",
    "top": "SELECT title, n FROM groups ORDER BY n DESC, title LIMIT 7",
    "total": "SELECT COUNT(*), MAX(x) FROM posts",
    "kinds": "SELECT DISTINCT title, author FROM posts",
    "numbered": "SELECT id, author, ROW_NUMBER() OVER (PARTITION BY author ORDER BY id) AS place FROM posts",
    "keyed": "SELECT author, COUNT(*) AS n FROM posts GROUP BY author HAVING n >= ?",
}


class Db:
    """The tables posts and likes, with one worker in this process."""

    def __init__(self, path: Path):
        self.path, self.notes = path, list[str]()
        self.open()

    def open(self) -> None:
        self.transport = EmbeddedTransport(self.path, workers=1)

    def sql(self, text: str) -> Counter[Any]:
        rows = self.transport.sql(text, []).rows
        return Counter() if rows is None else Counter(map(str, rows.to_pylist()))

    def close(self) -> None:
        self.transport.close()

    def again(self) -> int:
        """Close and open the database.  Returns the number of restored states."""
        self.close()
        self.open()
        return self.restored()

    def restored(self) -> int:
        """The number of states that the last opening has restored."""
        engine = self.worker.engine
        return 0 if engine.saved is None else int(engine.restored)

    @property
    def worker(self) -> Any:
        return self.transport.link.hosted

    def fill(self) -> None:
        self.sql("CREATE TABLE posts (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(40), x DOUBLE)")
        self.sql("CREATE TABLE likes (post INT, user INT, PRIMARY KEY (post, user))")
        posts = (f"({i}, {i % 7}, {'NULL' if i % 50 == 3 else repr(f'Té {i % 900}')}, {i / 7})" for i in range(ROWS))
        self.sql("INSERT INTO posts VALUES " + ", ".join(posts))
        self.sql("INSERT INTO likes VALUES " + ", ".join(f"({i % 1_000}, {i})" for i in range(ROWS)))
        for name, text in VIEWS.items():
            self.sql(f"CREATE VIEW {name} AS {text}")

    def rows(self) -> dict[str, Counter[Any]]:
        return {v: self.sql(f"SELECT * FROM {v}" + (" WHERE n >= 3" if v == "keyed" else "")) for v in VIEWS}
