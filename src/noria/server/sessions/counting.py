"""Counts affected rows and words the info line of an OK packet as MySQL does, with and without CLIENT_FOUND_ROWS.

                                   without        with the flag
    UPDATE                         rows changed   rows found
    ON DUPLICATE KEY UPDATE, row   1 inserted, 2 changed, 0 unchanged; with the flag 1 unchanged
"""

from __future__ import annotations

from noria.core.statements import Delete, Insert, Update, WriteResult


def counted(command: Insert | Update | Delete, result: WriteResult, found_rows: bool, selected: bool = False
            ) -> tuple[int, str]:
    """Return the number of affected rows, and the info line of the OK packet ("" for none).  selected: a SELECT has
    found the rows of an INSERT."""
    if isinstance(command, Update):
        info = f"Rows matched: {result.matched}  Changed: {result.affected}  Warnings: 0"
        return result.matched if found_rows else result.affected, info
    if isinstance(command, Delete):
        return result.affected, ""
    rows, affected = len(command.rows), result.affected
    duplicates = rows - affected if command.on_duplicate == "ignore" else affected - rows
    if command.on_duplicate == "update":
        changed = (affected - (rows - result.matched)) // 2
        affected += (result.matched - changed) * found_rows
        duplicates = result.matched if found_rows else changed
    return affected, f"Records: {rows}  Duplicates: {duplicates}  Warnings: 0" if rows > 1 or selected else ""


__all__ = ["counted"]
