"""Parses what sqlglot lacks: [NOT] ENFORCED, ADD CHECK and ALTER CHECK, and the argument of MATCH … AGAINST.

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

    def _parse_match_against(self) -> exp.MatchAgainst:
        """Read MATCH (columns) AGAINST (value [mode]), of which sqlglot reads only a string as the value."""
        columns = self._parse_csv(self._parse_column)
        if not self._match_text_seq(")", "AGAINST", "("):
            self.raise_error("MATCH (columns) is followed by AGAINST (text)", self._curr or self._prev)
        text, mode = self._parse_bitwise(), None
        for words in ("IN NATURAL LANGUAGE MODE WITH QUERY EXPANSION", "IN NATURAL LANGUAGE MODE", "IN BOOLEAN MODE",
                      "WITH QUERY EXPANSION"):
            if mode is None and self._match_text_seq(*words.split()):
                mode = words
        return self.expression(exp.MatchAgainst(this=text, expressions=columns, modifier=mode))

    def _parse_alter_table_alter(self) -> exp.Expr | None:
        if not self._match_texts(("CHECK", "CONSTRAINT")):
            return super()._parse_alter_table_alter()
        kind, name = self._prev.text.upper(), self._parse_id_var()
        enforced = not self._match_text_seq("NOT")
        if name is None or not self._match_text_seq("ENFORCED"):
            self.raise_error("ALTER CHECK takes a name and [NOT] ENFORCED", self._curr or self._prev)
        return self.expression(AlterCheck(this=name, enforced=enforced, kind=kind))
