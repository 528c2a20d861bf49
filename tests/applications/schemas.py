"""The schemas of Debian's packages, unmodified, on Noria and on MariaDB: what one accepts and the other does not.

    make schemas          needs apt-get, dpkg, and Debian's packages mariadb-client and mariadb-server

It downloads the packages, without installing them, and loads each schema with the mariadb client.  It prints each
statement that fails here and not there, and each table whose number of rows differs.  It fails for an error that
`KNOWN` does not have, and for one that `KNOWN` has and that is gone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from e2e.local import LocalServer
from e2e.mariadb import MariaDb

SCHEMAS = {  # by package
    "bacula-director-mysql": ("usr/share/dbconfig-common/data/bacula-director-mysql/install/mysql",),
    "cacti": ("usr/share/cacti/conf_templates/cacti.sql",),
    "ejabberd": ("usr/share/ejabberd/sql/mysql.new.sql",),
    "freeradius-config": ("etc/freeradius/3.0/mods-config/sql/main/mysql/schema.sql",),
    "gammu-smsd": ("usr/share/doc/gammu-smsd/examples/mysql.sql",),
    "icinga2-ido-mysql": ("usr/share/icinga2-ido-mysql/schema/mysql.sql",),
    "icingadb": ("usr/share/icingadb/schema/mysql/schema.sql",),
    "icingaweb2-module-director": ("usr/share/icingaweb2/modules/director/schema/mysql.sql",),
    "kamailio-mysql-modules": tuple(f"usr/share/kamailio/mysql/{name}-create.sql" for name in (
        "standard", "acc", "dialog", "presence", "registrar", "usrloc")),
    "mediawiki": ("usr/share/mediawiki/maintenance/tables-generated.sql",),
    "opendmarc": ("usr/share/dbconfig-common/data/opendmarc/install/mysql",),
    "pdns-backend-mysql": ("usr/share/pdns-backend-mysql/schema/schema.mysql.sql",),
    "phpmyadmin": ("usr/share/phpmyadmin/sql/create_tables.sql",),
    "request-tracker5": ("usr/share/request-tracker5/etc/schema.mysql",),
    "roundcube-core": ("usr/share/roundcube/SQL/mysql.initial.sql",),
    "tt-rss": ("usr/share/tt-rss/schema/ttrss_schema_mysql.sql",),
}
KNOWN = {  # errors here that MariaDB does not have, by package: (number, a part of the message)
    "cacti": {(1235, "CREATE FUNCTION"), (1305, "NOAUTOCREATENEEDED")},
    "icingadb": {(1235, "CREATE FUNCTION")},
    "icingaweb2-module-director": {  # MySQL 8.4 refuses these keys, too: they refer to columns that are not UNIQUE
        (6125, "director_generated_config_activity"), (1824, "director_generated_config")},
    "pdns-backend-mysql": {(1074, "64000"), (1146, "domains"), (1146, "records")},  # a VARCHAR(64000) of latin1
}
_ERROR = re.compile(r"ERROR (\d+) \(\w+\) at line \d+: (.*)")


def downloaded(package: str, directory: Path) -> Path:
    """The files of a package."""
    subprocess.run(["apt-get", "download", package], cwd=directory, check=True, capture_output=True)
    (archive,) = directory.glob(f"{package}_*.deb")
    subprocess.run(["dpkg", "-x", archive, directory / package], check=True)
    return directory / package


def errors(connection: list[str], database: str, path: Path) -> list[tuple[int, str]]:
    """Load a file, and return the errors."""
    done = subprocess.run(["mariadb", "--force", "-u", "root", *connection, database], stdin=path.open("rb"),
                          capture_output=True, check=False)
    return [(int(m[1]), m[2]) for m in _ERROR.finditer(done.stderr.decode("utf-8", "replace"))]


def counts(connection: Any, database: str) -> dict[str, int]:
    """The number of rows of each table."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (database,))
        names = [name for name, in cursor.fetchall()]
        found = {}
        for name in names:
            cursor.execute(f"SELECT COUNT(*) FROM `{database}`.`{name}`")
            (found[name.lower()],), = cursor.fetchall()
        return found


def main() -> int:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as made, closing(MariaDb(Path(made))) as maria, closing(
            LocalServer(Path(made) / "data")) as local, maria.connect("loaded") as theirs, local.connect() as mine:
        places = ["-h", "127.0.0.1", "-P", str(local.mysql.address[1])], ["-S", maria.socket]
        for package, paths in SCHEMAS.items():
            database = "of_" + package.replace("-", "_")
            for connection in (mine, theirs):
                connection.cursor().execute(f"CREATE DATABASE {database}")
            root, here, there = downloaded(package, Path(made)), [], []
            for path in paths:
                ours, others = (errors(place, database, root / path) for place in places)
                here += [e for e in ours if e not in others]
                there += others
            known = KNOWN.get(package, set())
            new = [e for e in here if not any(number == e[0] and part in e[1] for number, part in known)]
            gone = [k for k in known if not any(k[0] == number and k[1] in said for number, said in here)]
            tables, wanted = counts(mine, database), counts(theirs, database)
            differ = {t for t in tables if tables[t] != wanted.get(t)} if not new else set()
            print(f"{package}: {len(tables)} of {len(wanted)} tables, {sum(tables.values())} rows, "
                  f"{len(here)} errors that MariaDB does not have", flush=True)
            wrong += [f"{package}: {e}" for e in (*new, *(f"no more: {k}" for k in gone), *sorted(differ))]
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
