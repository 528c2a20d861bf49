"""SET of a session's system variables.

Keeps true: a value is rejected with the reason if it would change the meaning of statements and Noria does not support
that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from noria import __version__
from noria.accounts import policy
from noria.core import limits
from noria.core.errors import SqlError
from noria.core.errors.codes import (
    GLOBAL_VARIABLE,
    INCORRECT_GLOBAL_LOCAL_VAR,
    PARSE_ERROR,
    UNKNOWN_CHARACTER_SET,
    UNKNOWN_COLLATION,
    UNKNOWN_SYSTEM_VARIABLE,
    UNKNOWN_TIME_ZONE,
    WRONG_TYPE_FOR_VAR,
    WRONG_VALUE_FOR_VAR,
)
from noria.core.expressions.library.fulltext_search import LEAST, MOST
from noria.core.expressions.library.zones import zone_of
from noria.core.limits import LONGEST_EXECUTION_MS
from noria.server.sessions.modes.sql_mode import STRICT
from noria.sql.sql_modes import EXPANDED, TRANSLATED

Value = Any  # int, str, bool or None
Kept = tuple[Value, str]  # the normalised value, and a warning for the client ("" for none)

_COLLATIONS = "utf8mb4_0900_ai_ci and utf8mb4_bin"
_CHARSETS = ("utf8mb4", "utf8", "utf8mb3", "ascii", "binary", "default")  # UTF-8 needs no conversion for these
_REFUSED_MODES = ("HIGH_NOT_PRECEDENCE", "NO_UNSIGNED_SUBTRACTION", "PAD_CHAR_TO_FULL_LENGTH",
                  "TIME_TRUNCATE_FRACTIONAL", "ALLOW_INVALID_DATES")
_APPEND = re.compile(r"concat\s*\(\s*@@(?:session\.)?sql_mode\s*,\s*'([^']*)'\s*\)", re.IGNORECASE)
_PLAIN_MODES = {"ONLY_FULL_GROUP_BY", "NO_ZERO_IN_DATE", "NO_ZERO_DATE", "ERROR_FOR_DIVISION_BY_ZERO",
                "NO_ENGINE_SUBSTITUTION", "NO_AUTO_CREATE_USER", "NO_DIR_IN_CREATE", "NO_AUTO_VALUE_ON_ZERO",
                "IGNORE_SPACE"}
_OFFSET = re.compile(r"[+-](\d{1,2}):([0-5]\d)")
_UTC = ("SYSTEM", "UTC", "ETC/UTC", "GMT", "+00:00", "-00:00", "+0:00")
_ISOLATION = ("READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE")
_OF_THE_SERVER = ("max_connect_errors", *policy.DEFAULTS)
_NO_LIMIT = 2**63 - 1


SERVER_VERSION = f"8.0.40-noria-{__version__}"
"""Clients choose what they send by the number in front: MySQL 8.0, whose dialect and errors these are."""

VARIABLES: dict[str, Any] = {
    "cte_max_recursion_depth": 1000,
    "auto_increment_increment": 1, "autocommit": 1, "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4", "character_set_database": "utf8mb4", "character_set_results": "utf8mb4",
    "character_set_server": "utf8mb4", "character_set_system": "utf8mb3", "collation_connection": "utf8mb4_0900_ai_ci",
    "collation_database": "utf8mb4_0900_ai_ci", "collation_server": "utf8mb4_0900_ai_ci", "default_storage_engine":
    "NORIA", "foreign_key_checks": 1, "have_ssl": "DISABLED", "init_connect": "", "innodb_strict_mode": 1,
    "interactive_timeout": limits.MYSQL_IDLE_S, "innodb_lock_wait_timeout": int(limits.LOCK_WAIT_S),
    "ft_max_word_len": MOST, "ft_min_word_len": 4,  # MyISAM's: MediaWiki pads shorter words
    "innodb_ft_enable_stopword": 1, "innodb_ft_max_token_size": MOST, "innodb_ft_min_token_size": LEAST,
    "license": "Apache-2.0", "lock_wait_timeout": int(limits.LOCK_WAIT_S),
    "lower_case_table_names": 2, "max_allowed_packet":
    limits.MAX_PACKET_BYTES, "max_connect_errors": limits.MAX_CONNECT_ERRORS,
    "max_execution_time": limits.MAX_EXECUTION_MS, "net_buffer_length": 16384, "net_write_timeout": 60,
    "performance_schema": 0, "innodb_read_only": 0, "log_bin": 0, "read_only": 0, "server_id": 1, "super_read_only": 0,
    "query_cache_size": 0, "query_cache_type": "OFF", "sql_auto_is_null": 0, "sql_mode":
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO",
    "group_concat_max_len": 2**32 - 1, "lc_messages": "en_US", "lc_time_names": "en_US", "net_read_timeout": 30,
    "optimizer_switch": "", "profiling": 0, "session_track_schema": 1, "session_track_state_change": 0,
    "session_track_system_variables": "", "sql_big_selects": 1, "sql_quote_show_create": 1, "sql_warnings": 0,
    "sql_notes": 1, "sql_safe_updates": 0, "sql_select_limit": 2**63 - 1, "system_time_zone": "UTC", "time_zone": "UTC",
    "transaction_isolation": "REPEATABLE-READ", "transaction_read_only": 0, "tx_isolation": "REPEATABLE-READ",
    "tx_read_only": 0, "unique_checks": 1, "version": SERVER_VERSION, "version_comment": "Noria on Spark",
    "version_compile_machine": "x86_64", "version_compile_os": "Linux", "wait_timeout": limits.MYSQL_IDLE_S,
}


def changes(name: str, value: Value, known: Mapping[str, Value]) -> tuple[dict[str, Value], list[str]]:
    """Check `SET name = value`.  Return the variables to change with their values, and the warnings.

    known: the session's variables.  A known variable without a check in this module is read-only (error 1238), any
    other name is unknown (1193).  For SET NAMES and SET TRANSACTION the names are `names` and `transaction`.  The value
    of sql_mode may be the text of an expression CONCAT(@@sql_mode, ',…'), which clients use.

    >>> changes("autocommit", "ON", {})[0]
    {'autocommit': 1}
    """
    name = name.lower()
    if name == "transaction":
        return _transaction(str(value))
    if value == "DEFAULT" and name in VARIABLES:
        value = VARIABLES[name]
    if name == "sql_mode" and isinstance(value, str):
        value = _appended(value, known.get(name, ""))
    if name in _OF_THE_SERVER:
        raise SqlError(*GLOBAL_VARIABLE, f"Variable '{name}' is a GLOBAL variable and should be set with SET GLOBAL")
    names = _TOGETHER.get(name, (name,))
    check = _CHECKS.get(names[0])
    if check is None and name in known:
        raise SqlError(*INCORRECT_GLOBAL_LOCAL_VAR, f"Variable '{name}' is a read only variable")
    if check is None:
        raise SqlError(*UNKNOWN_SYSTEM_VARIABLE, f"Unknown system variable '{name}'")
    kept, warning = check(name, value)
    return dict.fromkeys(names, kept), [warning] if warning else []


def most_errors(value: Value) -> tuple[int, list[str]]:
    """Check SET GLOBAL max_connect_errors.  Return the number and the warnings.

    >>> most_errors(0)
    (1, ["Truncated incorrect max_connect_errors value: '0'"])
    """
    if str(value).upper() == "DEFAULT":
        return limits.MAX_CONNECT_ERRORS, []
    number, _ = _number("max_connect_errors", value)
    return max(1, number), [f"Truncated incorrect max_connect_errors value: '{number}'"] if number < 1 else []


def _transaction(characteristics: str) -> tuple[dict[str, Value], list[str]]:
    """Check the characteristics of SET TRANSACTION, such as `isolation level serializable, read only`."""
    kept: dict[str, Value] = {}
    warnings: list[str] = []
    for part in characteristics.lower().split(","):
        words = part.replace("-", " ").split()
        if words[:2] == ["isolation", "level"]:
            changed = changes("transaction_isolation", "-".join(words[2:]), {})
        elif words in (["read", "only"], ["read", "write"]):
            changed = changes("transaction_read_only", words[1] == "only", {})
        else:
            raise SqlError(*PARSE_ERROR, f"You have an error in your SQL syntax: SET TRANSACTION {part.strip()}")
        kept |= changed[0]
        warnings += changed[1]
    return kept, warnings


def _wrong(name: str, value: Value, instead: str = "") -> SqlError:
    shown = "NULL" if value is None else value
    return SqlError(*WRONG_VALUE_FOR_VAR, f"Variable '{name}' can't be set to the value of '{shown}'"
                                          + (f"; {instead}" if instead else ""))


def _flag(name: str, value: Value) -> Kept:
    word = str(int(value) if isinstance(value, bool) else value).upper()
    if word in ("1", "ON", "TRUE", "DEFAULT"):
        return 1, ""
    if word in ("0", "OFF", "FALSE"):
        return 0, ""
    raise _wrong(name, value)


def _number(name: str, value: Value) -> Kept:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SqlError(*WRONG_TYPE_FOR_VAR, f"Incorrect argument type to variable '{name}'; give a whole number")
    return value, ""


def _word(name: str, value: Value) -> Kept:
    return "" if value is None else str(value), ""


def _charset(name: str, value: Value) -> Kept:
    if value is None and name == "character_set_results":
        return None, ""  # NULL requests results as they are stored, in UTF-8
    if str(value).lower() not in _CHARSETS:
        raise SqlError(*UNKNOWN_CHARACTER_SET,
                       f"Unknown character set: '{value}'; Noria speaks utf8mb4 (SET NAMES utf8mb4)")
    return "utf8mb4" if str(value).lower() == "default" else str(value).lower(), ""


def _collation(name: str, value: Value) -> Kept:
    if str(value).lower().partition("_")[0] not in _CHARSETS:
        raise SqlError(*UNKNOWN_COLLATION, f"Unknown collation: '{value}'; Noria has {_COLLATIONS}")
    return str(value).lower(), ""


def _sql_mode(name: str, value: Value) -> Kept:
    named = [mode for part in str(value or "").upper().split(",") if (mode := part.strip())]
    modes = [each for mode in named for each in (*EXPANDED.get(mode, ()), mode)]
    for mode in modes:
        if mode in _REFUSED_MODES:
            raise _wrong(name, mode, "it would change what statements mean, and Noria does not have it: leave it out")
        if mode not in STRICT | _PLAIN_MODES and mode not in (*TRANSLATED, *EXPANDED):
            raise _wrong(name, mode)
    return ",".join(dict.fromkeys(modes)), ""


def _appended(value: str, before: Value) -> str:
    """Return the value, or the result of the expression CONCAT(@@sql_mode, ',…').

    >>> _appended("CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')", "NO_ZERO_DATE")
    'NO_ZERO_DATE,STRICT_ALL_TABLES'
    """
    more = _APPEND.fullmatch(value.strip())
    return f"{before},{more[1].lstrip(',')}" if more else value


def _time_zone(name: str, value: Value) -> Kept:
    """Accept UTC under its names, offsets, and the names of zones."""
    found = _OFFSET.fullmatch(str(value))
    wide = found is not None and int(found[1]) * 60 + int(found[2]) > 14 * 60
    known = str(value).upper() in _UTC or (value is not None and zone_of(str(value)) is not None)
    if wide or not known:
        raise SqlError(*UNKNOWN_TIME_ZONE,
                       f"Unknown or incorrect time zone: '{value}'; give a name like 'Europe/Berlin', or an offset "
                       "like '+02:00'")
    return str(value), ""


def _isolation(name: str, value: Value) -> Kept:
    level = str(value).upper().replace(" ", "-")
    if level not in _ISOLATION:
        raise _wrong(name, value)
    if level == "READ-UNCOMMITTED":
        return "READ-COMMITTED", "READ UNCOMMITTED is served as READ COMMITTED: no uncommitted row is ever shown"
    return level, ""


def _off(name: str, value: Value) -> Kept:
    flag, _ = _flag(name, value)
    if flag:
        raise _wrong(name, value, "Noria does not have what it asks for: leave it off")
    return 0, ""


def _select_limit(name: str, value: Value) -> Kept:
    if str(value).upper() != "DEFAULT" and _number(name, value)[0] < _NO_LIMIT:
        raise _wrong(name, value, "Noria cuts no result by itself: write LIMIT into the statement")
    return _NO_LIMIT, ""


def _execution_time(name: str, value: Value) -> Kept:
    limit, _ = _number(name, value)
    if limit > LONGEST_EXECUTION_MS:
        return LONGEST_EXECUTION_MS, f"Truncated incorrect max_execution_time value: '{limit}'"
    return limit, ""


_TOGETHER = {
    "names": ("character_set_client", "character_set_connection", "character_set_results"),
    "transaction_isolation": ("transaction_isolation", "tx_isolation"),
    "tx_isolation": ("transaction_isolation", "tx_isolation"),
    "transaction_read_only": ("transaction_read_only", "tx_read_only"),
    "tx_read_only": ("transaction_read_only", "tx_read_only"),
}
"""Names that are set at once; the first one's check holds for all."""

_CHECKS: dict[str, Callable[[str, Value], Kept]] = {
    "autocommit": _flag,
    "sql_mode": _sql_mode,
    "time_zone": _time_zone,
    "transaction_isolation": _isolation,
    "transaction_read_only": _flag,
    **dict.fromkeys(("character_set_client", "character_set_connection", "character_set_results",
                     "character_set_database", "character_set_server"), _charset),
    **dict.fromkeys(("collation_connection", "collation_database", "collation_server"), _collation),
    "sql_select_limit": _select_limit,
    "max_execution_time": _execution_time,
    **dict.fromkeys(("sql_auto_is_null", "sql_safe_updates"), _off),
    **dict.fromkeys(("foreign_key_checks", "unique_checks", "innodb_strict_mode", "sql_notes",
                     "sql_warnings", "sql_big_selects", "sql_quote_show_create", "session_track_schema",
                     "session_track_state_change", "profiling"), _flag),
    **dict.fromkeys(("wait_timeout", "interactive_timeout", "net_read_timeout", "net_write_timeout",
                     "lock_wait_timeout", "innodb_lock_wait_timeout", "group_concat_max_len",
                     "cte_max_recursion_depth"), _number),
    **dict.fromkeys(("lc_messages", "lc_time_names", "session_track_system_variables", "optimizer_switch",
                     "default_storage_engine"), _word),
}
