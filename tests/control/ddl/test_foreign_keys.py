"""The order in which a new FOREIGN KEY becomes valid: its definition, the end of writes without it, its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from control.databases import Opened
from noria.core.errors import SqlError
from noria.core.types import TableDef

TABLES = ("CREATE TABLE p (id INT PRIMARY KEY)", "CREATE TABLE c (id INT PRIMARY KEY, p INT)",
          "INSERT INTO p VALUES (1)", "INSERT INTO c VALUES (1, 1)")
CHANGE = "ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p (id)"


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_are_counted_when_the_key_is_in_force(tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
                                                   ) -> None:
    opened = Opened(tmp_path / "data", workers)
    for text in TABLES:
        opened.db.sql(text)
    seen = []

    async def in_force(table: TableDef) -> None:
        known = opened.program.table("c")
        seen.append((table.name, known == table, len(table.foreign_keys)))
        await opened.transport.sessions.run("INSERT INTO c VALUES (2, 2)", ())  # of a write that began before

    opened.program.foreign_keys.in_force = in_force
    with pytest.raises(SqlError) as e:
        opened.db.sql(CHANGE)
    assert e.value.code == 1452 and seen == [("c", True, 1)]
    found = opened.program.table("c")
    assert found is not None and not found.foreign_keys and not found.indexes
    opened.db.sql("DELETE FROM c WHERE id = 2")
    opened.db.sql("SET foreign_key_checks = 0; " + CHANGE)
    assert len(seen) == 1  # nothing is counted
    opened.again()
    found = opened.program.table("c")
    assert found is not None and [k.name for k in found.foreign_keys] == ["c_ibfk_1"]
    opened.db.close()


def test_an_index_that_cannot_be_built_takes_its_key_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(tmp_path / "data")
    for text in TABLES:
        opened.db.sql(text)
    sender = opened.program.sender
    send = sender.request

    async def failing(request: object) -> object:
        if getattr(request, "what", "") == "indexed":
            raise SqlError(1021, "HY000", "Disk full")
        return await send(request)

    monkeypatch.setattr(sender, "request", failing)
    with pytest.raises(SqlError, match="Disk full"):
        opened.db.sql(CHANGE)
    found = opened.program.table("c")
    assert found is not None and not found.foreign_keys and not found.indexes
    opened.db.close()
