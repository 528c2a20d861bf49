"""Parses the clauses of constraints that sqlglot lacks: [NOT] ENFORCED, ADD CHECK, and ALTER CHECK.

The argument `enforced` of a parsed CHECK is False only after NOT ENFORCED.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.parsers.mysql import MySQLParser
from sqlglot.tokenizer_core import TokenType


class AlterCheck(exp.Expression):
    """ALTER {CHECK | CONSTRAINT} name [NOT] ENFORCED, a part of ALTER TABLE."""

    arg_types: ClassVar = {"this": True, "enforced": True, "kind": True}


class ConstraintParser(MySQLParser):
    """sqlglot's parser of MySQL, with these clauses."""

    ADD_CONSTRAINT_KEYWORDS: ClassVar = {*MySQLParser.ADD_CONSTRAINT_KEYWORDS, "CHECK"}

    def _parse_unique_key(self) -> exp.Expr | None:
        """Read UNIQUE.  In `a INT UNIQUE FIRST` the last word is a position, not the key's name."""
        if self._match_texts(("FIRST", "AFTER"), advance=False) and self._next.token_type is not TokenType.L_PAREN:
            return None
        return super()._parse_unique_key()

    def _parse_check_constraint(self) -> exp.CheckColumnConstraint | None:
        made = super()._parse_check_constraint()
        if made is not None:
            made.set("enforced", bool(made.args.get("enforced")) or not self._match_text_seq("NOT", "ENFORCED"))
        return made

    def _parse_alter_table_alter(self) -> exp.Expr | None:
        if not self._match_texts(("CHECK", "CONSTRAINT")):
            return super()._parse_alter_table_alter()
        kind, name = self._prev.text.upper(), self._parse_id_var()
        enforced = not self._match_text_seq("NOT")
        if name is None or not self._match_text_seq("ENFORCED"):
            self.raise_error("ALTER CHECK takes a name and [NOT] ENFORCED", self._curr or self._prev)
        return self.expression(AlterCheck(this=name, enforced=enforced, kind=kind))
