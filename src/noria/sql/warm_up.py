"""Plans some SELECTs before the first client does, because Python runs code faster after a few runs.

Keeps true: no plan is kept.
"""

from __future__ import annotations

from noria.core.types import DATETIME, INT, TEXT, Column, TableDef
from noria.plan.view import ViewDef
from noria.sql.commands import PlannedStatement
from noria.sql.parse import prepare

USERS = TableDef("users", (Column("id", INT, False), Column("name", TEXT, False)), (0,), table_id=1)
POSTS = TableDef("posts", (Column("id", INT, False), Column("author", INT, False), Column("title", TEXT),
                           Column("at", DATETIME)), (0,), table_id=2)
SELECTS = (
    "SELECT title, at FROM posts WHERE id = {n}",
    "SELECT COUNT(*), MAX(at) FROM posts WHERE author = {n}",
    "SELECT p.id, title, u.name FROM posts p JOIN users AS u ON u.id = p.author ORDER BY p.at DESC, p.id LIMIT {n}",
    "SELECT u.id, u.name, COUNT(p.id) AS n FROM users u LEFT JOIN posts p ON p.author = u.id WHERE u.id IN ({n}, 2) "
    "GROUP BY u.id, u.name HAVING n > 1 ORDER BY n DESC",
    "SELECT id FROM posts WHERE author <> {n} AND title LIKE 'a%' AND (at IS NOT NULL OR id > 7)",
    "SELECT author, at FROM posts WHERE id = ? AND author = ? ORDER BY at LIMIT ?",
)
ROUNDS = 5


class _Catalog:
    """A catalog of the two tables; implements `query.relations.context.Catalog`."""

    def table(self, name: str) -> TableDef | None:
        return {"users": USERS, "posts": POSTS}.get(name)

    def view(self, name: str) -> ViewDef | None:
        return None


def plan_some(rounds: int = ROUNDS) -> list[PlannedStatement]:
    """Parse and plan SELECTS `rounds` times, each time with other literals."""
    return [prepare(text.format(n=n), _Catalog()) for n in range(1, rounds + 1) for text in SELECTS]
