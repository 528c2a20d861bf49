"""The queries of a blog's pages, and the rows of its tables.  using: the name of the database in Django's settings."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import Count

from blog.models import ALL, Comment, Like, Post, User

BEGAN = datetime(2026, 1, 1)
BATCH = 1_000
Rows = list[tuple[Any, ...]]


def create(using: str = "default") -> None:
    with connections[using].schema_editor() as editor:
        for model in ALL:
            editor.create_model(model)


def drop(using: str = "default") -> None:
    with connections[using].schema_editor() as editor:
        for model in reversed(ALL):
            editor.delete_model(model)


def fill(rows: int, using: str = "default") -> None:
    """Insert `rows` rows into each table, the same in each run."""
    chance = random.Random(1)

    def one() -> int:
        return chance.randint(1, rows)

    made: dict[Any, Callable[[int], dict[str, Any]]] = {
        User: lambda i: {"name": f"User {i}"},
        Post: lambda i: {"author_id": one(), "title": f"Post {i}", "body": f"What post {i} says.",
                         "created_at": BEGAN + timedelta(minutes=i)},
        Comment: lambda i: {"post_id": one(), "author_id": one(), "text": f"Comment {i}"},
        Like: lambda i: {"post_id": min(one(), one(), one()), "user_id": i},
    }
    for model, values in made.items():
        model.objects.using(using).bulk_create([model(id=i, **values(i)) for i in range(1, rows + 1)], batch_size=BATCH)


def pages(id: int, using: str = "default") -> dict[str, Callable[[], Rows]]:
    """Return the pages by name.  id: the number of the post or user that they show."""
    posts, comments, likes = (m.objects.using(using) for m in (Post, Comment, Like))

    def rows(query: Any, *columns: str) -> Callable[[], Rows]:
        return lambda: list(query.all().values_list(*columns))  # all(): runs the query each time

    return {
        "home": rows(posts.order_by("-created_at", "-id")[:20], "id", "title", "author__name", "created_at"),
        "post": rows(posts.filter(pk=id), "title", "body", "author__name"),
        "comments": rows(comments.filter(post=id).order_by("id"), "text", "author__name"),
        "likes": lambda: [(likes.filter(post=id).count(),)],
        "profile": rows(posts.filter(author=id).annotate(n=Count("likes")).order_by("-n", "id")[:10],
                        "id", "title", "n"),
        "top": rows(posts.annotate(n=Count("likes")).order_by("-n", "id")[:20], "id", "title", "n"),
    }
