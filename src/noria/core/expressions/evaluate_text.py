"""CONCAT, LIKE and the folding of comparisons over symbol ids (see `evaluate.py`).

Other functions of text are in `library/text.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noria.core.batch import Codes
from noria.core.expressions.casts import interned, per_distinct, texts
from noria.core.expressions.expr import Call, Const
from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.core.symbols import Symbols, fold

Mask = npt.NDArray[np.bool_]
Node = Callable[[Codes, Symbols], Codes]
FEW = 8  # rows up to which plain Python is faster than Arrow
MaskNode = Callable[[Codes, Symbols], Mask]


def fold_codes(codes: Codes, symbols: Symbols) -> Codes:
    """Return the ids of the folded twins.  NULL and errors stay."""
    if codes.item(codes.argmin()) >= 0:
        return symbols.fold_table[codes]
    valid = codes >= 0
    out = codes.copy()
    out[valid] = symbols.fold_table[codes[valid]]
    return out


# ------------------------------------------------------------------ one text
def _measured(f: Callable[[str], int]) -> Callable[[Call, list[Node]], Node]:
    def make(e: Call, nodes: list[Node]) -> Node:
        node = nodes[0]
        return lambda columns, symbols: per_distinct(
            node(columns, symbols), lambda c: np.array([f(t) for t in texts(c, symbols)], np.int64))

    return make


# ------------------------------------------------------------------ several arguments
def _rowwise(nodes: list[Node], combine: Callable[[list[Codes], Symbols], Codes]) -> Node:
    """Return a node that runs `combine` over the rows without NULLs and errors.  Other rows are NULL or an error."""
    def run(columns: Codes, symbols: Symbols) -> Codes:
        table = np.stack(np.broadcast_arrays(*(node(columns, symbols) for node in nodes)))
        good = table.min(axis=0) > ERROR_CODE
        out = np.where((table == ERROR_CODE).any(axis=0), ERROR_CODE, NULL_CODE)
        if good.any():
            out[good] = combine(list(table[:, good]), symbols)
        return out

    return run


def _concat(e: Call, nodes: list[Node]) -> Node:
    def combine(arguments: list[Codes], symbols: Symbols) -> Codes:
        if len(arguments[0]) > FEW:
            nothing = pa.scalar("", pa.large_string())
            return symbols.intern_many(pc.binary_join_element_wise(*map(symbols.texts, arguments), nothing))
        parts = [texts(a, symbols) for a in arguments]
        return interned(["".join(row) for row in zip(*parts, strict=True)], symbols)

    return _rowwise(nodes, combine)


# ------------------------------------------------------------------ LIKE
@lru_cache(maxsize=512)
def like_pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """Translate a LIKE pattern into a regular expression for the full text.

    Each part between two `%` matches at its first possible position, without backtracking.  So the time of a match is
    at most proportional to the product of the lengths of text and pattern.
    """
    parts, at = [""], 0
    while at < len(pattern):
        c = pattern[at]
        if c == escape and escape and at + 1 < len(pattern):
            at += 1
            parts[-1] += re.escape(pattern[at])
        elif c == "%":
            parts.append("")
        else:
            parts[-1] += "." if c == "_" else re.escape(c)
        at += 1
    first, *rest = parts
    found = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return re.compile(first + found + (".*" + rest[-1] if rest else ""), re.DOTALL)


def like_mask(e: Call, nodes: list[Node], wanted: bool) -> MaskNode:
    """Compile LIKE to a mask.  Both sides are folded unless the collation of one is BIN."""
    text, pattern = e.args[0], e.args[1]
    folds = text.type.folds and pattern.type.folds
    escape = e.args[2].value if isinstance(e.args[2], Const) else ""
    if folds:
        nodes = [_folding(nodes[0]), nodes[1]]

    def match(text: str, pattern: str) -> bool:
        return like_pattern(fold(pattern) if folds else pattern, escape).fullmatch(text) is not None

    if isinstance(pattern, Const) and pattern.value is not None:
        constant = pattern.value
        codes = _measured(lambda t: match(t, constant))(e, nodes)
    else:
        codes = _rowwise(nodes[:2], lambda a, s: np.array(
            [match(t, p) for t, p in zip(texts(a[0], s), texts(a[1], s), strict=True)], np.int64))
    return lambda columns, symbols: codes(columns, symbols) == int(wanted)


def _folding(node: Node) -> Node:
    return lambda columns, symbols: fold_codes(node(columns, symbols), symbols)


TEXTS: dict[str, Callable[[Call, list[Node]], Node]] = {"concat": _concat}
