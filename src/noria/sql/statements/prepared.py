"""PREPARE, EXECUTE and DEALLOCATE PREPARE as statements.

    PREPARE p FROM 'SELECT * FROM t WHERE id = ?';  EXECUTE p USING @id;  DEALLOCATE PREPARE p
"""

from __future__ import annotations

from noria.core.errors import parse_error
from noria.sql.commands import DeallocatePrepared, ExecutePrepared, PrepareText
from noria.sql.words import Words


def prepare(r: Words) -> PrepareText:
    name = r.name()
    if not r.take("FROM"):
        raise parse_error(f"PREPARE name FROM 'text' or @variable, near '{r.near()}'")
    made = PrepareText(name, None, _variable(r)) if r.take("@") else PrepareText(name, r.string())
    r.end()
    return made


def execute(r: Words) -> ExecutePrepared:
    name, variables = r.name(), list[str]()
    if r.take("USING"):
        while not variables or r.take(","):
            if not r.take("@"):
                raise parse_error(f"EXECUTE name USING @variable, …, near '{r.near()}'")
            variables.append(_variable(r))
    r.end()
    return ExecutePrepared(name, tuple(variables))


def deallocate(r: Words) -> DeallocatePrepared:
    """DEALLOCATE PREPARE name, or DROP PREPARE name; the first word is read."""
    if not r.take("PREPARE"):
        raise parse_error(f"DEALLOCATE PREPARE name, near '{r.near()}'")
    name = r.name()
    r.end()
    return DeallocatePrepared(name)


def _variable(r: Words) -> str:
    return r.name().lower()
