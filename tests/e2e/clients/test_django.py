"""The blog of examples/django_blog: Django's ORM makes the tables, writes, and asks the pages; SQLite, asked by the
same querysets, says what is right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.serving import Served

pytestmark = pytest.mark.spark
EXAMPLE = Path(__file__).parents[3] / "examples" / "django_blog"
ROWS = 600
CHECK = """
import random, runpy, sys

example, port, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, example)
runpy.run_path(example + "/__main__.py", run_name="example")["configure"](
    "127.0.0.1", port, "root", "", "noria", sqlite={"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"})
from blog import pages
from blog.models import Comment, Like, Post, User

both = ("default", "sqlite")
for using in both:
    pages.create(using)
    pages.fill(rows, using)


def same():
    checked = 0
    for id in (1, 7, rows // 2, rows, rows + 1):
        right = pages.pages(id, "sqlite")
        for _ in range(3):  # a one-shot, then one beside a view in the making, then the view
            for name, page in pages.pages(id).items():
                assert page() == right[name](), (name, id)
                checked += 1
    return checked


chance, checked = random.Random(5), same()
for step in range(12):
    some = [chance.randint(1, rows) for _ in range(20)]
    for using in both:
        posts, likes = Post.objects.using(using), Like.objects.using(using)
        posts.filter(pk__in=some[:3]).update(title=f"Edited {step}", created_at=pages.BEGAN)
        likes.filter(user__in=some[3:9]).delete()
        Like(post_id=7, user_id=some[9]).save(using=using)
        Post.objects.using(using).create(author_id=7, title=f"New {step}", body="...", created_at="2027-01-01 00:00:00")
        comment = Comment.objects.using(using).get(pk=some[10])
        comment.text = f"Changed {step}"
        comment.save()
        author = User.objects.using(using).filter(pk=some[11]).first()
        if author is not None:
            author.name += "!"
            author.save(update_fields=["name"])
    checked += same()
for using in both:
    posts = Post.objects.using(using)
    posts.get(pk=7).delete()  # Django deletes its comments and likes, too
checked += same()
pages.drop()
print(checked, "answers are the same")
"""


def test_a_blog_through_django(tmp_path: Path) -> None:
    server = Served(tmp_path / "data")
    try:
        port = server.mysql_port
        ran = subprocess.run([sys.executable, str(EXAMPLE), "--port", str(port), "--rows", "300"], capture_output=True,
                             text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("1,200 rows in ") and len(ran.stdout.splitlines()) == 8
        checked = subprocess.run([sys.executable, "-c", CHECK, str(EXAMPLE), str(port), str(ROWS)], capture_output=True,
                                 text=True, timeout=240)
        assert checked.returncode == 0, checked.stderr
        assert checked.stdout == f"{14 * 5 * 3 * 6} answers are the same\n"
    finally:
        server.close()
