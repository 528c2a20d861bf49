"""Debian's WordPress, unmodified, on Noria and on MariaDB: installed, filled and read; its pages must be equal.

    make applications          needs Debian's packages wordpress, php-cli, php-mysql and mariadb-server

It prints how many pages and lines it compared, the seconds of each server, and every line that differs.
"""

from __future__ import annotations

import difflib
import html
import http.cookiejar
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from e2e.mariadb import MariaDb
from e2e.serving import Served, until
from ports import free_port

SOURCE = Path("/usr/share/wordpress")
FILL = Path(__file__).with_name("fill.php")
PAGES = (
    "/", "/?paged=2", "/?p=8", "/?s=red", "/?s=lorem&paged=2", "/?cat=2", "/?tag=tag1", "/?author=2", "/?m=202401",
    "/?m=20240105", "/?feed=rss2", "/?feed=comments-rss2", "/wp-admin/", "/wp-admin/edit.php",
    "/wp-admin/edit.php?orderby=title&order=asc", "/wp-admin/edit.php?s=blue", "/wp-admin/edit.php?post_status=draft",
    "/wp-admin/edit-comments.php", "/wp-admin/users.php", "/wp-admin/edit-tags.php?taxonomy=post_tag",
    "/wp-admin/edit-tags.php?taxonomy=category", "/wp-admin/options-general.php", "/wp-admin/plugins.php",
    "/wp-admin/upload.php?mode=list", "/wp-admin/edit.php?post_type=page", "/wp-admin/post.php?post=8&action=edit",
    "/wp-admin/tools.php", "/wp-admin/export.php", "/wp-sitemap.xml", "/wp-sitemap-posts-post-1.xml",
    "/index.php?rest_route=/wp/v2/posts", "/index.php?rest_route=/wp/v2/posts&search=red&per_page=3&page=2",
    "/index.php?rest_route=/wp/v2/comments", "/index.php?rest_route=/wp/v2/tags", "/index.php?rest_route=/wp/v2/users",
    "/wp-admin/export.php?download=true&content=all",
)
UNORDERED = ("/wp-admin/export.php?download=true&content=all",)  # its queries have no ORDER BY
ADMIN = {"weblog_title": "Blog", "user_name": "admin", "admin_password": "secret123X", "admin_password2": "secret123X",
         "pw_weak": "1", "admin_email": "a@example.org", "blog_public": "0", "language": ""}
CONFIGURATION = """<?php
define('DB_NAME', 'wp'); define('DB_USER', 'root'); define('DB_PASSWORD', ''); define('DB_HOST', '{host}');
define('DB_CHARSET', 'utf8mb4'); define('DB_COLLATE', ''); $table_prefix = 'wp_';
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $of) {{
    define($of . '_KEY', $of); define($of . '_SALT', $of); }}
define('WP_DEBUG', true); define('WP_DEBUG_LOG', '{log}'); define('WP_DEBUG_DISPLAY', false);
define('DISABLE_WP_CRON', true); define('WP_HTTP_BLOCK_EXTERNAL', true);
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
"""
OF_A_RUN = (  # what differs from run to run: ports, hashes, the time of the installation
    (r"(nonce[a-zA-Z_-]*[\"']?\s*(?:value=|[:=])?\s*[\"'])[0-9a-f]{10}", r"\1N"), (r"\b[0-9a-f]{10}\b", "H"),
    (r"\b20(?!24)\d\d[-/]\d\d[-/]\d\d([T ]| at )\d{1,2}:\d\d(:\d\d)?( [ap]m)?", "NOW"), (r"\b\d\d:\d\d:\d\d\b", "T"),
    (r"\b1\d{9}\b", "S"), (r"\b\d{1,2}:\d\d( [apAP][mM])?", "T"), (r'(<div class="(?:hh|mn|ss)">)\d\d', r"\1T"),
    (r'(name="(?:hh|mn|ss|hidden_mn|hidden_hh|cur_mn|cur_hh)"[^>]* value=")\d\d', r"\1T"),
    (r'(value=")\d\d("[^>]* name="(?:hh|mn|ss)")', r"\1T\2"), (r":[0-9a-f]{6}:[0-9a-f]{6}:", ":C:"),
    (r"[012](?=\.gravatar\.com)", "N"),
)


class Site:
    """One WordPress and the client that reads it."""

    def __init__(self, directory: Path, host: str):
        shutil.copytree(SOURCE, directory, symlinks=False, ignore_dangling_symlinks=True)
        self._directory, self._log, self._port = directory, directory.with_suffix(".log"), free_port()
        (directory / "wp-config.php").unlink(missing_ok=True)
        (directory / "wp-config.php").write_text(CONFIGURATION.format(host=host, log=self._log))
        self._client = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    @contextmanager
    def served(self) -> Iterator[None]:
        with subprocess.Popen(["php", "-S", f"127.0.0.1:{self._port}"], cwd=self._directory, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            try:
                until("PHP serves", self._answers, 30)
                yield
            finally:
                process.terminate()

    def _answers(self) -> bool:
        try:
            return self.page("/readme.html")[0] == 200
        except urllib.error.URLError:
            return False

    def page(self, path: str, **form: str) -> tuple[int, str]:
        data = urllib.parse.urlencode(form).encode() if form else None
        try:
            with self._client.open(f"http://127.0.0.1:{self._port}{path}", data, timeout=120) as answer:
                return answer.status, self._plain(answer.read().decode("utf-8", "replace"))
        except urllib.error.HTTPError as e:
            return e.code, self._plain(e.read().decode("utf-8", "replace"))

    def _plain(self, text: str) -> str:
        text = re.sub(r"&#0*\d+;", lambda letter: html.unescape(letter[0]), text)  # of addresses, by chance
        text = text.replace(str(self._port), "PORT").replace(str(self._directory), "DIRECTORY")
        for pattern, shown in OF_A_RUN:
            text = re.sub(pattern, shown, text)
        return text

    def everything(self) -> list[str]:
        """Install, fill and read the site.  Returns the lines of all its pages."""
        assert "Success!" in self.page("/wp-admin/install.php?step=2", **ADMIN)[1]
        filled = subprocess.run(["php", "-r", f"require '{FILL}';"], cwd=self._directory, capture_output=True,
                                text=True, check=True)
        lines = filled.stdout.splitlines()
        self.page("/wp-login.php", log="admin", pwd="secret123X", testcookie="1")
        for path in PAGES:
            status, text = self.page(path)
            shown = sorted(re.split(r"(?=<wp:)|\n", text)) if path in UNORDERED else text.splitlines()
            lines += [f"== {path}: {status}", *shown]
        return lines + self.errors()

    def errors(self) -> list[str]:
        text = self._log.read_text() if self._log.exists() else ""
        return [line.split("] ", 1)[-1] for line in text.splitlines() if "database error" in line]


def read(name: str, site: Site) -> list[str]:
    began = time.monotonic()
    with site.served():
        lines = site.everything()
    print(f"{name}: {len(PAGES)} pages, {len(lines)} lines, {time.monotonic() - began:.1f} s", flush=True)
    return lines


def run(connection: Any, statement: str) -> None:
    with connection, connection.cursor() as cursor:
        cursor.execute(statement)


def differences(theirs: list[str], mine: list[str]) -> list[str]:
    """What differs: the parts of lines around it, if there are as many lines, else the lines."""
    if len(theirs) != len(mine):
        return list(difflib.unified_diff(theirs, mine, "MariaDB", "Noria", n=0, lineterm=""))
    found = []
    for number, (a, b) in enumerate(zip(theirs, mine, strict=True)):
        if a != b:
            equal = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            at = max(0, equal - 100)
            found += [f"line {number}", f"- {a[at:at + 200]}", f"+ {b[at:at + 200]}"]
    return found


def main() -> int:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="noria-wordpress-")))
        (directory / "maria").mkdir()
        maria = stack.enter_context(closing(MariaDb(directory / "maria")))
        run(maria.connect(None), "CREATE DATABASE wp")
        theirs = read("MariaDB", Site(directory / "theirs", f"localhost:{directory / 'maria' / 's'}"))
        noria = Served(directory / "data")
        stack.callback(noria.stop)
        run(noria.connect(), "CREATE DATABASE wp")
        mine = read("Noria", Site(directory / "mine", f"127.0.0.1:{noria.mysql_port}"))
    different = differences(theirs, mine)
    print(*different, sep="\n")
    print("the pages differ" if different else "all lines are equal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
