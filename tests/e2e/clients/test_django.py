"""The blog of examples/django_blog: Django's ORM makes the tables, writes, and asks the pages; SQLite, asked by the
same querysets, says what is right.  And an application with the backend that docs/how-to has: migrations, `manage.py
test`, transactions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from e2e.local import LocalServer
from e2e.serving import Served
from noria.spark.hosting.session import import_path

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "migrate-with-django-and-alembic.md"
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
from django.db import transaction

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
        try:
            with transaction.atomic(using=using):
                posts.filter(pk=7).update(title="Undone")
                raise KeyError
        except KeyError:
            pass
    checked += same()
for using in both:
    posts = Post.objects.using(using)
    posts.get(pk=7).delete()  # Django deletes its comments and likes, too
checked += same()
pages.drop()
print(checked, "answers are the same")
"""


@pytest.mark.spark
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


# ---------------------------------------------------------------- an application with the documented backend
APPLICATION = {
    "settings.py": """
import os
import pymysql
pymysql.version_info = (2, 2, 7, "final", 0)
pymysql.install_as_MySQLdb()
SECRET_KEY, USE_TZ, DEFAULT_AUTO_FIELD = "x", True, "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "noria_backend", "HOST": "127.0.0.1", "PORT": os.environ["SERVER"], "USER": "root",
                         "NAME": "noria"}}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "bank"]
""",
    "bank/__init__.py": "",
    "bank/models.py": """
from django.contrib.auth.models import User
from django.db import models
from django.db.models import F, Q, functions


class Account(models.Model):
    owner = models.ForeignKey(User, models.CASCADE)
    n = models.PositiveIntegerField()
    twice = models.GeneratedField(expression=F("n") * 2, output_field=models.IntegerField(), db_persist=True)
    at = models.DateTimeField(db_default=functions.Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(n__lte=1000), name="small"),
                       models.UniqueConstraint(fields=["owner", "n"], name="owner_n")]
        indexes = [models.Index(functions.Abs("n"), name="skipped")]
""",
    "bank/tests.py": """
import threading

from django.contrib.auth.models import User
from django.db import IntegrityError, OperationalError, connection, models, transaction
from django.db.models import F
from django.test import TestCase, TransactionTestCase

from bank.models import Account


def rows():
    return list(Account.objects.order_by("id").values_list("owner__username", "n", "twice"))


def fill():
    for id, (name, n) in enumerate((("ann", 10), ("bob", 20)), 1):
        Account.objects.create(id=id, owner=User.objects.create_user(name), n=n)


class Rolled(TestCase):  # each test is a transaction that is rolled back
    @classmethod
    def setUpTestData(cls):
        fill()

    def test_nested(self):
        with transaction.atomic():
            Account.objects.filter(owner__username="ann").update(n=F("n") + 5)
            with self.assertRaises(IntegrityError), transaction.atomic():
                Account.objects.all().delete()
                User.objects.create_user("bob")
            with self.assertRaises(IntegrityError), transaction.atomic():
                Account.objects.filter(owner__username="ann").update(n=1001)
            saved = transaction.savepoint()
            User.objects.create_user("cid")
            transaction.savepoint_rollback(saved)
        self.assertEqual(rows(), [("ann", 15, 30), ("bob", 20, 40)])

    def test_again(self):
        self.assertEqual(rows(), [("ann", 10, 20), ("bob", 20, 40)])
        User.objects.get(username="ann").delete()  # and the account
        self.assertEqual(rows(), [("bob", 20, 40)])


class Committed(TransactionTestCase):
    def setUp(self):
        fill()

    def test_alterations(self):
        small = Account._meta.constraints[0]
        index = models.Index(fields=["at"], name="moment")
        with connection.schema_editor() as editor:
            editor.remove_constraint(Account, small)
            editor.add_index(Account, index)
        Account.objects.filter(n=10).update(n=1001)
        Account.objects.filter(n=1001).update(n=10)
        with connection.schema_editor() as editor:
            editor.add_constraint(Account, small)
            editor.remove_index(Account, index)
        with self.assertRaises(IntegrityError):
            Account.objects.filter(n=10).update(n=1001)

    def test_locks(self):
        held, done, found = threading.Event(), threading.Event(), []

        def hold():
            with transaction.atomic():
                found.extend(Account.objects.select_for_update().filter(n=10))
                held.set()
                done.wait(60)
            connection.close()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        accounts = Account.objects.select_related("owner").order_by("id")
        with self.assertRaises(OperationalError) as e, transaction.atomic():
            list(accounts.select_for_update(nowait=True))
        self.assertEqual(e.exception.args[0], 3572)
        for of, want in (((), [20]), (("self",), [20]), (("owner",), [10, 20])):
            with transaction.atomic():
                self.assertEqual([a.n for a in accounts.select_for_update(skip_locked=True, of=of)], want)
        done.set()
        holder.join(60)

    def test_deadlock(self):
        both, tries = threading.Barrier(2), []

        def transfer(first, second):
            count = 0
            while True:
                count += 1
                try:
                    with transaction.atomic():
                        Account.objects.filter(pk=first).update(n=F("n") - 1)
                        if count == 1:
                            both.wait(60)
                        Account.objects.filter(pk=second).update(n=F("n") + 1)
                    break
                except OperationalError as e:
                    assert e.args[0] == 1213
            tries.append(count)
            connection.close()

        threads = [threading.Thread(target=transfer, args=pair) for pair in ((1, 2), (2, 1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual((sorted(tries), rows()), ([1, 2], [("ann", 10, 20), ("bob", 20, 40)]))
""",
}


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 3])
def test_an_application_with_the_documented_backend(tmp_path: Path, workers: int) -> None:
    (code,) = re.findall(r"\n\n(    from django\.db.*?)\n\n(?=\S)", GUIDE.read_text(), re.DOTALL)
    files = {**APPLICATION, "noria_backend/__init__.py": "", "noria_backend/base.py": textwrap.dedent(code)}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    server = LocalServer(tmp_path / "data", workers=workers)
    try:
        for command in (["makemigrations", "bank"], ["migrate"], ["test", "--noinput"], ["migrate", "bank", "zero"]):
            done = subprocess.run([sys.executable, "-m", "django", *command], cwd=tmp_path, capture_output=True,
                                  text=True, timeout=120, env={
                                      **os.environ, "SERVER": str(server.mysql.address[1]), "DJANGO_SETTINGS_MODULE":
                                      "settings", "PYTHONPATH": f"{tmp_path}:{import_path()}"})
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            assert command[0] != "test" or "Ran 5 tests" in done.stderr
    finally:
        server.close()
