"""SET: what clients say at connect is taken, what Noria cannot honour is refused or warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

import noria
from noria.core.errors import SqlError
from noria.server.sessions.variables import _CHECKS, _TOGETHER, VARIABLES, changes
from noria.sql.commands import OutputColumn, SelectItems, SetVariable, Show, Transaction
from noria.sql.parse import parse
from server.sessions.connection import Connection

ISOLATION = ("transaction_isolation", "tx_isolation")


@pytest.mark.parametrize(("name", "value", "kept", "warns"), [
    ("autocommit", 1, {"autocommit": 1}, False),
    ("AUTOCOMMIT", True, {"autocommit": 1}, False),
    ("autocommit", "OFF", {"autocommit": 0}, False),
    ("names", "utf8mb4", dict.fromkeys(
        ("character_set_client", "character_set_connection", "character_set_results"), "utf8mb4"), False),
    ("character_set_results", None, {"character_set_results": None}, False),
    ("collation_connection", "utf8mb4_unicode_ci", {"collation_connection": "utf8mb4_unicode_ci"}, False),
    ("sql_mode", "STRICT_TRANS_TABLES,strict_trans_tables", {"sql_mode": "STRICT_TRANS_TABLES"}, False),
    ("sql_mode", "", {"sql_mode": ""}, False),
    ("sql_mode", "TRADITIONAL,NO_AUTO_VALUE_ON_ZERO", {
        "sql_mode": "STRICT_TRANS_TABLES,STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
                    "NO_ENGINE_SUBSTITUTION,TRADITIONAL,NO_AUTO_VALUE_ON_ZERO"}, False),
    ("sql_mode", "concat(@@sql_mode,',STRICT_ALL_TABLES')", {"sql_mode": "NO_ZERO_DATE,STRICT_ALL_TABLES"}, False),
    ("time_zone", "+00:00", {"time_zone": "+00:00"}, False),
    ("time_zone", "-05:30", {"time_zone": "-05:30"}, False),
    ("transaction", "ISOLATION LEVEL READ COMMITTED", dict.fromkeys(ISOLATION, "READ-COMMITTED"), False),
    ("transaction", "isolation level repeatable read, read only",
     {**dict.fromkeys(ISOLATION, "REPEATABLE-READ"), "transaction_read_only": 1, "tx_read_only": 1}, False),
    ("transaction_isolation", "READ-UNCOMMITTED", dict.fromkeys(ISOLATION, "READ-COMMITTED"), True),
    ("innodb_lock_wait_timeout", 5, {"innodb_lock_wait_timeout": 5}, False),
    ("tx_isolation", "REPEATABLE-READ", dict.fromkeys(ISOLATION, "REPEATABLE-READ"), False),
    ("foreign_key_checks", 0, {"foreign_key_checks": 0}, False),
    ("sql_select_limit", "DEFAULT", {"sql_select_limit": 2**63 - 1}, False),
    ("max_execution_time", 100, {"max_execution_time": 100}, False),
    ("max_execution_time", 10**9, {"max_execution_time": 3_600_000}, True),
    ("sql_safe_updates", 0, {"sql_safe_updates": 0}, False),
    ("wait_timeout", 2147483, {"wait_timeout": 2147483}, False),
])
def test_taken(name: str, value: object, kept: dict[str, object], warns: bool) -> None:
    got, warnings = changes(name, value, {"sql_mode": "NO_ZERO_DATE"})
    assert got == kept and bool(warnings) == warns


@pytest.mark.parametrize(("name", "value", "code"), [
    ("autocommit", 2, 1231), ("names", "latin1", 1115), ("collation_connection", "latin1_swedish_ci", 1273),
    ("sql_mode", "PAD_CHAR_TO_FULL_LENGTH", 1231),
    ("sql_mode", "TIME_TRUNCATE_FRACTIONAL", 1231), ("sql_mode", "LENIENT", 1231), ("sql_mode", "concat(x, 'y')", 1231),
    ("time_zone", "Europe/Atlantis", 1298), ("time_zone", "+15:00", 1298), ("wait_timeout", "long", 1232),
    ("transaction", "isolation level none", 1231), ("transaction", "isolated", 1064),
    ("sql_select_limit", 10, 1231), ("sql_safe_updates", 1, 1231), ("sql_auto_is_null", "ON", 1231),
    ("version", "9.9", 1238), ("nonsense", 1, 1193), ("character_set_client", None, 1115),
])
def test_refused(name: str, value: object, code: int) -> None:
    with pytest.raises(SqlError) as caught:
        changes(name, value, {"version": "8"})
    assert caught.value.code == code


CHATTER = (Path(__file__).parent / "client_chatter.txt").read_text().splitlines()


class NoTables:
    def table(self, name: str) -> None: ...

    def view(self, name: str) -> None: ...


@pytest.mark.parametrize("text", [line for line in CHATTER if line and not line.startswith("#")])
def test_what_clients_send_by_themselves_is_understood(text: str) -> None:
    for command in parse(text, NoTables()):
        assert isinstance(command, SetVariable | SelectItems | Show | Transaction), command
        for assignment in command.assignments if isinstance(command, SetVariable) else ():
            if assignment.scope != "user" and not isinstance(assignment.value, OutputColumn):
                changes(assignment.name, assignment.value, {"sql_mode": ""})


def test_a_mode_is_appended_to_the_modes_of_the_session(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        connection = Connection(db)
        connection.sql("SET sql_mode = 'NO_ZERO_DATE'")
        connection.sql("SET sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')")
        assert connection.rows("SELECT @@sql_mode") == [("NO_ZERO_DATE,STRICT_ALL_TABLES",)]


def test_what_can_be_set_can_be_read(tmp_path: Path) -> None:
    # MediaWiki saves and restores @@sql_big_selects, and asks whether the server is read-only.
    with noria.open(tmp_path) as db:
        for name in (*(n for n in _CHECKS if n not in _TOGETHER), "read_only", "super_read_only", "innodb_read_only"):
            ((value,),) = db.sql(f"SELECT @@{name}").rows
            assert value == VARIABLES[name], name
            assert db.sql(f"SHOW VARIABLES LIKE '{name}'").rows, name
