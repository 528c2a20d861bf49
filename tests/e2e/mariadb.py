"""A MariaDB for tests, in its own directory, on its own socket; stopped by its process id.

Keeps true: it shares no directory for temporary files, because a MariaDB that starts deletes those of all others there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pytest

from e2e.serving import until

DAEMON = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
INSTALL = shutil.which("mariadb-install-db")
INSTALLED = DAEMON is not None and INSTALL is not None
needs_mariadb = pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")


class MariaDb:
    """As strict as MySQL 8, with the collations that are nearest to Noria's."""

    def __init__(self, directory: Path):
        assert DAEMON is not None and INSTALL is not None
        data, self.socket = directory / "mariadb", str(directory / "s")
        self._log, temporary = directory / "mariadb.log", directory / "tmp"
        temporary.mkdir()
        around = {**os.environ, "TMPDIR": str(temporary)}
        with self._log.open("wb") as log:
            subprocess.run(
                [INSTALL, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
                 "--skip-test-db", "--user=root"], check=True, stdout=log, stderr=log, timeout=120, env=around)
            self._process = subprocess.Popen(
                [DAEMON, "--no-defaults", f"--datadir={data}", "--user=root", f"--socket={self.socket}",
                 "--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--character-set-server=utf8mb4",
                 "--collation-server=utf8mb4_unicode_nopad_ci", "--lower-case-table-names=1",
                 "--sql-mode=ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
                 "ERROR_FOR_DIVISION_BY_ZERO", "--default-time-zone=+00:00"], stdout=log, stderr=log, env=around)
        until("MariaDB answers", self._answers, 60)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            self.connect(database=None).close()
        except pymysql.err.OperationalError:
            return False
        return True

    def connect(self, database: str | None = "oracle") -> Any:
        connection = pymysql.connect(unix_socket=self.socket, user="root", autocommit=True, ssl_disabled=True)
        if database is not None:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE IF NOT EXISTS {database}")
                cursor.execute(f"USE {database}")
        return connection

    def connector(self) -> Any:
        """By the driver that has prepared statements."""
        return mysql.connector.connect(unix_socket=self.socket, user="root", autocommit=True, use_pure=True,
                                       collation="utf8mb4_general_ci", ssl_disabled=True)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
