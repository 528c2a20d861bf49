"""A dialect for SQLAlchemy over `noria.dbapi`, derived from MySQL's.

    create_engine("noria:///data")                            an embedded database in the directory `data`
    create_engine("noria:////srv/data?memory_limit=1000000000")   another one, with options of `noria.open`
    create_engine("noria://user:password@host:8080")          a server's HTTP port; noria+https:// for TLS

Keeps true: a missing feature of the database leads to an error.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import exc, util
from sqlalchemy.dialects.mysql.base import MySQLDialect
from sqlalchemy.engine import URL

from noria.client.within import LEVELS

_DEFAULT, _AUTOCOMMIT = "REPEATABLE READ", "AUTOCOMMIT"


class NoriaDialect(MySQLDialect):
    """The dialect.  scheme: the scheme of the server's address."""

    driver, scheme = "noria", "http"
    supports_statement_cache = True
    supports_native_decimal = True
    default_paramstyle = "qmark"

    @classmethod
    def import_dbapi(cls) -> Any:
        from noria import dbapi

        return dbapi

    def create_connect_args(self, url: URL) -> tuple[list[str], dict[str, Any]]:
        options: dict[str, Any] = {"found_rows": True, **url.query}
        for name in ("memory_limit", "workers"):
            util.coerce_kw_type(options, name, int)
        if url.host and not url.database:
            server = URL.create(self.scheme, url.username, url.password, url.host, url.port)
            return [server.render_as_string(hide_password=False)], options
        if url.database and not url.host and self.scheme == "http":
            return [url.database], options
        raise exc.ArgumentError(f"'{url.render_as_string()}' names no database: noria:///DIRECTORY is an embedded one, "
                                "noria://HOST:PORT a server's")

    # ------------------------------------------------------------ differences among MySQL's drivers
    def _detect_charset(self, connection: Any) -> str:
        return "utf8mb4"

    def _extract_error_code(self, exception: Any) -> int:
        return int(exception.code)

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return "the database is closed" in str(e) or "the connection is closed" in str(e)

    # ------------------------------------------------------------ transactions
    def get_isolation_level_values(self, dbapi_conn: Any) -> Any:
        return (*LEVELS, _AUTOCOMMIT)

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        dbapi_connection.autocommit = level == _AUTOCOMMIT
        dbapi_connection.isolation = None if level == _AUTOCOMMIT else level

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        return _AUTOCOMMIT if dbapi_connection.autocommit else dbapi_connection.isolation or _DEFAULT

    def _two_phases(self, *arguments: Any, **options: Any) -> Any:
        raise exc.NotSupportedError("two-phase commits (XA)", None, NotImplementedError())

    do_begin_twophase = _two_phases


class NoriaHttpsDialect(NoriaDialect):
    scheme = "https"
    supports_statement_cache = True
