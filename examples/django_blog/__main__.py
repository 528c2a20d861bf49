"""A blog through Django's ORM, on Noria or any MySQL: python examples/django_blog --port 3307 [--rows 10000]

Creates four tables with Django's schema editor, fills them by `bulk_create`, and reads six pages with querysets, each
several times.  It declares no views: Noria makes one for a query that is repeated.  Needs Django and PyMySQL.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import django
import pymysql
from django.conf import settings


def configure(host: str, port: int, user: str, password: str, database: str, **others: dict[str, str]) -> None:
    """Set Django up.  others: more databases, by their name in Django."""
    pymysql.version_info = (2, 2, 7, "final", 0)  # Django requires this version of mysqlclient; PyMySQL works, too
    pymysql.install_as_MySQLdb()
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.mysql", "HOST": host, "PORT": str(port), "USER": user,
                               "PASSWORD": password, "NAME": database}, **others},
        INSTALLED_APPS=["blog"], DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", USE_TZ=False)
    django.setup()


def timed(call: Callable[[], Any]) -> float:
    """Call a function and return its duration in ms."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def report(pages: dict[str, Callable[[], Any]], times: int = 20) -> Iterator[str]:
    yield f"{'ms':<10} {'first':>9} {'again':>9} {'later':>9}"
    for name, page in pages.items():
        first, again, *later = (timed(page) for _ in range(times + 2))
        yield f"{name:<10} {first:9.1f} {again:9.1f} {sorted(later)[times // 2]:9.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--database", default="noria")
    parser.add_argument("--rows", type=int, default=10_000, help="of each table")
    parser.add_argument("--keep", action="store_true", help="leave the tables there")
    options = parser.parse_args()
    configure(options.host, options.port, options.user, options.password, options.database)
    from blog import pages  # imports models, which need a configured Django

    pages.create()
    try:
        took = timed(lambda: pages.fill(options.rows))
        print(f"{4 * options.rows:,} rows in {took / 1000:.1f} s", flush=True)
        for line in report(pages.pages(7)):
            print(line, flush=True)
    finally:
        if not options.keep:
            pages.drop()


if __name__ == "__main__":
    main()
