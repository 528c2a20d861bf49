"""Applies the WHERE of SHOW: any condition over the columns of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlglot import exp

from noria.core.batch import Batch
from noria.core.errors import unknown_column
from noria.core.expressions.evaluate import certain
from noria.core.expressions.expr import Col, Expr
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import Field
from noria.core.values import encode
from noria.sql.expressions.scalars import Resolver
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import parse_tokens, tokenize


def holding(text: str, fields: Sequence[Field], rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The rows for which the condition `text` is true.  Raises SqlError for anything but a condition."""
    def column(name: str, table: str, clause: str) -> Expr:
        for i, f in enumerate(fields):
            if f.name.lower() == name.lower() and not table:
                return Col(f.type, True, i)
        raise unknown_column(f"{table}.{name}" if table else name, clause)

    def parameter(p: exp.Placeholder) -> Expr:
        raise refuse("a parameter in SHOW", p, "write the value")

    query = f"SELECT 1 FROM DUAL WHERE {text}"
    tree = parse_tokens(tokenize(query), query).tree
    if any(tree.args.get(n) for n in ("group", "having", "order", "limit", "offset", "windows")):
        raise refuse("this in SHOW", tree, "write a condition only")
    wanted = call("and", Resolver(column, parameter, "where clause")(tree.args["where"].this))
    symbols = PlainSymbols()
    codes = [[encode(v, f.type, symbols) for v in values]
             for f, values in zip(fields, zip(*rows, strict=True), strict=True)] if rows else [[] for _ in fields]
    mask = certain(wanted)(Batch.of(np.array(codes, np.int64).reshape(len(fields), len(rows))), symbols)
    return [r for r, kept in zip(rows, mask.tolist(), strict=True) if kept]
