"""Runs an expression over a batch.  A tree is compiled once to nested closures over arrays of codes.

`compile(e)` returns codes, `predicate(e)` the mask of rows for which e is true, and `constant(e)` the Python value of a
tree without columns.  `certain(e)` is a predicate that raises if a row's condition is an error.  Trees must be made by
`functions`, which fits the arguments of each call.

* A batch often has one row, so closures do little.  Constants are arrays of one value that numpy broadcasts.  A check
  for NULL and errors costs one argmin if there are none.
* A condition has two masks: the rows where it is true, and those where it is false.  NULL and errors are in neither.
  AND, OR and NOT combine masks, so `false and error` is false.
* NULL and errors are the two least codes.  If an operation has both as arguments, the result is an error.
* An exception becomes an error of the row that raised it (`failures.py`).  Without exceptions this costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.expressions import casts, evaluate_exact
from noria.core.expressions.evaluate_library import library_node
from noria.core.expressions.evaluate_numbers import NUMBERS
from noria.core.expressions.evaluate_text import TEXTS, fold_codes, like_mask
from noria.core.expressions.expr import Call, Col, Const, Expr, columns_of, is_unrounded
from noria.core.expressions.failures import of_its_rows
from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.core.order import ranks
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import Symbols
from noria.core.types import BIGINT, Kind
from noria.core.values import decode, encode, evaluation_error

T = TypeVar("T")
Mask = npt.NDArray[np.bool_]
Node = Callable[[Codes, Symbols], Codes]  # columns, symbols -> codes, as many as the batch has rows, or one
MaskNode = Callable[[Codes, Symbols], Mask]
_ERROR, _NULL, _ZERO = (np.array([c], np.int64) for c in (ERROR_CODE, NULL_CODE, 0))


def compile(expr: Expr) -> Callable[[Batch, Symbols], Codes]:
    """Compile an expression to a function from a batch to codes."""
    node, row_by_row = _built(expr, value_node), _row_by_row(expr)

    def run(batch: Batch, symbols: Symbols) -> Codes:
        rows = len(batch.weights)
        if rows == 0:
            return np.empty(0, np.int64)
        try:
            codes = node(batch.columns, symbols)
        except Exception:
            codes = row_by_row(batch.columns, symbols)
        return codes if len(codes) == rows else np.repeat(codes, rows)

    return run


def predicate(expr: Expr) -> Callable[[Batch, Symbols], Mask]:
    """Compile a condition to a function from a batch to the mask of rows where it is true."""
    node, row_by_row = _built(expr, lambda e: mask_node(e, True)), _row_by_row(expr)

    def run(batch: Batch, symbols: Symbols) -> Mask:
        rows = len(batch.weights)
        if rows == 0:
            return np.empty(0, np.bool_)
        try:
            mask = node(batch.columns, symbols)
        except Exception:
            mask = _nonzero(row_by_row(batch.columns, symbols))
        return mask if len(mask) == rows else np.repeat(mask, rows)

    return run


def _built(expr: Expr, make: Callable[[Expr], T]) -> T:
    token = _MADE.set({})
    try:
        return make(expr)
    finally:
        _MADE.reset(token)


def _row_by_row(expr: Expr) -> Node:
    """Return the slow form of an expression, for batches in which it raises.  It is compiled at its first use."""
    @cache
    def guarded() -> Node:
        token = _GUARDED.set(True)
        try:
            return _built(expr, value_node)
        finally:
            _GUARDED.reset(token)

    return lambda columns, symbols: guarded()(columns, symbols)


def certain(expr: Expr) -> Callable[[Batch, Symbols], Mask]:
    """Compile a condition as `predicate` does.  The function raises SqlError 1690 if the condition is an error."""
    codes = compile(expr)

    def run(batch: Batch, symbols: Symbols) -> Mask:
        found = codes(batch, symbols)
        if (found == _ERROR).any():
            raise evaluation_error(BIGINT)
        return _nonzero(found)

    return run


def constant(expr: Expr) -> Any:
    """Return the Python value of a tree without columns.  Raises SqlError 1690 if its evaluation fails."""
    symbols = PlainSymbols()
    codes = compile(expr)(Batch(np.empty((0, 1), np.int64), np.ones(1, np.int64)), symbols)
    return decode(codes.item(), expr.type, symbols)


# ------------------------------------------------------------------ dispatch
def value_node(e: Expr) -> Node:
    if isinstance(e, Col):
        index = e.index
        return lambda columns, symbols: columns[index]
    if isinstance(e, Const):
        return _constant_node(e)
    assert isinstance(e, Call)
    node = _call_node(e)
    return of_its_rows(node, not columns_of(e)) if _GUARDED.get() else node


def _call_node(e: Call) -> Node:
    if e.op in _MASKS:
        return _once(e)
    if evaluate_exact.reads_unrounded(e):
        return evaluate_exact.node(e, EXACT)
    if e.op in _CHOICES:
        return _CHOICES[e.op](e)
    arguments = [value_node(a) for a in e.args]
    made = NUMBERS.get(e.op) or TEXTS.get(e.op) or library_node
    return made(e, arguments)


def mask_node(e: Expr, wanted: bool) -> MaskNode:
    """Compile a condition to the mask of rows where it is true or, if `wanted` is False, false."""
    if isinstance(e, Call) and e.op in _MASKS and not _GUARDED.get():
        return _MASKS[e.op](e, wanted)
    node = value_node(e)
    if wanted:
        return lambda columns, symbols: _nonzero(node(columns, symbols))
    return lambda columns, symbols: node(columns, symbols) == _ZERO


def _nonzero(codes: Codes) -> Mask:
    mask: Mask = (codes != _ZERO) & (codes > _ERROR)
    return mask


def _carried(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _constant_node(e: Const) -> Node:
    if e.type.is_text and e.value is not None:
        text = _carried(e.value)  # interned at each run, because a sweep between runs may free its id
        return lambda columns, symbols: np.array([symbols.intern(text)], np.int64)
    code = np.array([encode(e.value, e.type, PlainSymbols())], np.int64)
    return lambda columns, symbols: code


_GUARDED: ContextVar[bool] = ContextVar("guarded", default=False)
"""Is what is being compiled for rows of which some raise?  Then each call is guarded; conditions go by their codes."""
_MADE: ContextVar[dict[int, Node] | None] = ContextVar("made", default=None)
"""The values of conditions within the expression that is being compiled, by the identity of their trees."""


def _once(e: Call) -> Node:
    """Return the node of a condition's value, which is compiled once and evaluated once for each batch.  Otherwise the
    time for nested conditions such as `a = (b = (c = …))` would multiply with each level, because masks use their
    arguments several times."""
    made = _MADE.get()
    if made is None:
        token = _MADE.set({})
        try:
            return _from_masks(e)
        finally:
            _MADE.reset(token)
    if id(e) not in made:
        made[id(e)] = _remembering(_from_masks(e))
    return made[id(e)]


def _remembering(node: Node) -> Node:
    last: list[tuple[Codes, Codes]] = []

    def run(columns: Codes, symbols: Symbols) -> Codes:
        known = last[0] if last else None
        if known is None or known[0] is not columns:
            known = columns, node(columns, symbols)
            last[:] = [known]
        return known[1]

    return run


def _from_masks(e: Call) -> Node:
    """Compute the codes of a condition from its masks.  Other rows are errors if an argument is one, and else NULL."""
    true, false = _MASKS[e.op](e, True), _MASKS[e.op](e, False)
    exact = e.op in _COMPARE or e.op == "nseq"
    arguments = [evaluate_exact.specials(a, EXACT) if exact and is_unrounded(a) else value_node(a) for a in e.args]

    def run(columns: Codes, symbols: Symbols) -> Codes:
        yes = true(columns, symbols)
        codes: Codes = yes.astype(np.int64)
        unknown = ~(yes | false(columns, symbols))
        if unknown.item(unknown.argmax()):
            codes[unknown] = NULL_CODE
            for argument in arguments:
                codes[unknown & (argument(columns, symbols) == _ERROR)] = ERROR_CODE
        return codes

    return run


# ------------------------------------------------------------------ comparisons
def _equality_node(e: Expr, folds: bool) -> Node:
    """Compile an expression to codes that are equal if and only if the values are."""
    node = value_node(e)
    if not (e.type.is_text and folds):
        return node
    return lambda columns, symbols: fold_codes(node(columns, symbols), symbols)


def _sides(e: Call) -> tuple[Node, Node, bool]:
    """Compile both sides of a comparison to comparable codes.  Also return True if the right one is a constant that is
    not NULL and keeps its code."""
    a, b = e.args
    if is_unrounded(a) or is_unrounded(b):
        return *evaluate_exact.sides(a, b, EXACT), False
    valid = isinstance(b, Const) and b.value is not None
    if a.type.is_text and e.op not in ("eq", "ne", "nseq"):
        left, right = _order_sides(a, b)
        return left, right, valid
    if a.type.kind in (Kind.INT, Kind.DECIMAL) and a.type.scale != b.type.scale:
        left, right = _scaled_sides(a, b)
        return left, right, False
    folds = a.type.folds and b.type.folds
    return _equality_node(a, folds), _equality_node(b, folds), valid


def _order_sides(a: Expr, b: Expr) -> tuple[Node, Node]:
    """Compile two texts to their ranks among the distinct sort keys of the batch."""
    left, right = value_node(a), value_node(b)
    collation = b.type.collation if a.type.folds else a.type.collation

    def both(columns: Codes, symbols: Symbols) -> tuple[Codes, Codes]:
        x, y = left(columns, symbols), right(columns, symbols)
        ranked = ranks(np.concatenate([x, y]), collation, symbols)
        return ranked[: len(x)], ranked[len(x) :]

    return _halves(both)


def _halves(both: Callable[[Codes, Symbols], tuple[Codes, Codes]]) -> tuple[Node, Node]:
    return (lambda columns, symbols: both(columns, symbols)[0]), (lambda columns, symbols: both(columns, symbols)[1])


def _scaled_sides(a: Expr, b: Expr) -> tuple[Node, Node]:
    """Compile an INT or DECIMAL and a DECIMAL of another scale to codes that compare exactly.

    The finer value is divided by the difference in scale.  Twice its floor, plus one if there is a rest, is compared
    with twice the coarser value.  The coarser one is clipped to avoid overflow, which does not change the order.
    """
    coarse, fine = (a, b) if a.type.scale < b.type.scale else (b, a)
    unit = 10 ** (fine.type.scale - coarse.type.scale)
    coarse_node, fine_node = value_node(coarse), value_node(fine)

    def compared(columns: Codes, symbols: Symbols) -> tuple[Codes, Codes]:
        c, f = coarse_node(columns, symbols), fine_node(columns, symbols)
        floor = f // unit
        fine2 = 2 * floor + (floor * unit != f)
        coarse2 = 2 * np.clip(c, -(2**61), 2**61)
        c2, f2 = casts.with_specials(c, coarse2), casts.with_specials(f, fine2)
        return (c2, f2) if coarse is a else (f2, c2)

    return _halves(compared)


_COMPARE: dict[str, Callable[[Codes, Codes], Mask]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _comparison(e: Call, wanted: bool) -> MaskNode:
    """Compile a comparison.  NULL and errors are less than all values, so only some operators must check for them."""
    op = e.op if wanted else NEGATED[e.op]
    compare = _COMPARE[op]
    left, right, valid = _sides(e)
    if valid and op in ("eq", "gt", "ge"):
        if isinstance(e.args[0], Col) and not e.args[0].type.is_text:
            index, code = e.args[0].index, right(_ZERO, PlainSymbols())
            return lambda columns, symbols: compare(columns[index], code)
        return lambda columns, symbols: compare(left(columns, symbols), right(columns, symbols))
    if valid:
        def one_side(columns: Codes, symbols: Symbols) -> Mask:
            codes = left(columns, symbols)
            return compare(codes, right(columns, symbols)) & (codes > _ERROR)

        return one_side

    def both_sides(columns: Codes, symbols: Symbols) -> Mask:
        x, y = left(columns, symbols), right(columns, symbols)
        return compare(x, y) & (np.minimum(x, y) > _ERROR)

    return both_sides


def _null_safe(e: Call, wanted: bool) -> MaskNode:
    left, right, _ = _sides(e)

    def run(columns: Codes, symbols: Symbols) -> Mask:
        x, y = left(columns, symbols), right(columns, symbols)
        mask: Mask = ((x == y) == wanted) & (x != _ERROR) & (y != _ERROR)
        return mask

    return run


def _in(e: Call, wanted: bool) -> MaskNode:
    x = e.args[0]
    items = [a for a in e.args[1:] if isinstance(a, Const)]
    if x.type.is_text:
        folded = [i.value for i in items if x.type.folds and i.type.folds]
        exact = [_carried(i.value) for i in items if not (x.type.folds and i.type.folds)]
        return _text_in(x, folded, exact, wanted)
    node = value_node(x)
    codes = np.sort(np.array([encode(i.value, i.type, PlainSymbols()) for i in items], np.int64))

    def run(columns: Codes, symbols: Symbols) -> Mask:
        found = node(columns, symbols)
        mask: Mask = codes[np.minimum(codes.searchsorted(found), len(codes) - 1)] == found
        return mask if wanted else ~mask & (found > _ERROR)

    return run


def _text_in(x: Expr, folded: list[str], exact: list[str], wanted: bool) -> MaskNode:
    node = value_node(x)

    def run(columns: Codes, symbols: Symbols) -> Mask:
        codes = node(columns, symbols)
        mask = np.zeros(len(codes), np.bool_)
        if exact:
            mask |= np.isin(codes, [symbols.intern(t) for t in exact])
        if folded:
            wanted_ids = [symbols.intern(t) for t in folded]
            mask |= np.isin(fold_codes(codes, symbols), symbols.fold_table[wanted_ids])
        return mask if wanted else ~mask & (codes > _ERROR)

    return run


def _like(e: Call, wanted: bool) -> MaskNode:
    return like_mask(e, [value_node(a) for a in e.args], wanted)


# ------------------------------------------------------------------ logic
def _junction(e: Call, wanted: bool) -> MaskNode:
    """Compile `and` or `or`: `and` is true where all terms are true, and false where one is false."""
    nodes = [mask_node(a, wanted) for a in e.args]
    combine = np.logical_and if (e.op == "and") == wanted else np.logical_or
    first, rest = nodes[0], nodes[1:]

    def run(columns: Codes, symbols: Symbols) -> Mask:
        mask = first(columns, symbols)
        for node in rest:
            mask = combine(mask, node(columns, symbols))
        return mask

    return run


def _not(e: Call, wanted: bool) -> MaskNode:
    return mask_node(e.args[0], not wanted)


def _xor(e: Call, wanted: bool) -> MaskNode:
    left, right = (value_node(a) for a in e.args)

    def run(columns: Codes, symbols: Symbols) -> Mask:
        a, b = left(columns, symbols), right(columns, symbols)
        mask: Mask = (a > _ERROR) & (b > _ERROR) & (((a != _ZERO) != (b != _ZERO)) == wanted)
        return mask

    return run


def _is_null(e: Call, wanted: bool) -> MaskNode:
    node = value_node(e.args[0])
    if wanted:
        return lambda columns, symbols: node(columns, symbols) == _NULL
    return lambda columns, symbols: node(columns, symbols) > _ERROR


def _is_true(e: Call, wanted: bool) -> MaskNode:
    true = mask_node(e.args[0], True)
    if wanted:
        return true
    node = value_node(e.args[0])
    return lambda columns, symbols: ~true(columns, symbols) & (node(columns, symbols) != _ERROR)


def _may(e: Call, wanted: bool) -> MaskNode:
    """Compile `may`: the rows where the condition is true or an error."""
    node = value_node(e.args[0])

    def run(columns: Codes, symbols: Symbols) -> Mask:
        codes = node(columns, symbols)
        mask: Mask = (codes != _ZERO) & (codes != _NULL)
        return mask if wanted else ~mask

    return run


# ------------------------------------------------------------------ choices and casts
def _coalesce(e: Call) -> Node:
    nodes = [value_node(a) for a in e.args]

    def run(columns: Codes, symbols: Symbols) -> Codes:
        out = nodes[-1](columns, symbols)
        for node in nodes[-2::-1]:
            codes = node(columns, symbols)
            out = np.where(codes == _NULL, out, codes)
        return out

    return run


def _case(e: Call) -> Node:
    """Compile `case`: the value of the first true condition.  An error in a condition before it makes the row fail."""
    arms = [(mask_node(c, True), value_node(c), value_node(v))
            for c, v in zip(e.args[:-1:2], e.args[1::2], strict=True)]
    otherwise = value_node(e.args[-1])

    def run(columns: Codes, symbols: Symbols) -> Codes:
        out = otherwise(columns, symbols)
        for true, condition, value in reversed(arms):
            out = np.where(true(columns, symbols), value(columns, symbols), out)
            out = np.where(condition(columns, symbols) == _ERROR, _ERROR, out)
        return out

    return run


def _with_error(e: Call) -> Node:
    """Compile `told`: the first argument, or an error where another argument is one."""
    nodes = [value_node(a) for a in e.args]

    def run(columns: Codes, symbols: Symbols) -> Codes:
        out = nodes[0](columns, symbols)
        for node in nodes[1:]:
            out = np.where(node(columns, symbols) == _ERROR, _ERROR, out)
        return out

    return run


def _cast(e: Call) -> Node:
    node, kernel = value_node(e.args[0]), casts.kernel(e.args[0].type, e.type)
    return lambda columns, symbols: kernel(node(columns, symbols), symbols)


def _extreme(e: Call) -> Node:
    """Compile `greatest` or `least` of arguments of one type.  The result is NULL if an argument is NULL."""
    nodes, greatest = [value_node(a) for a in e.args], e.op == "greatest"
    text, collation = e.type.is_text, e.type.collation

    def run(columns: Codes, symbols: Symbols) -> Codes:
        table = np.stack(np.broadcast_arrays(*(node(columns, symbols) for node in nodes)))
        ranked = ranks(table.reshape(-1), collation, symbols).reshape(table.shape) if text else table
        chosen = ranked.argmax(axis=0) if greatest else ranked.argmin(axis=0)
        out = np.take_along_axis(table, chosen[None, :], axis=0)[0]
        out = np.where((table == _NULL).any(axis=0), NULL_CODE, out)
        return np.where((table == _ERROR).any(axis=0), ERROR_CODE, out)

    return run


_MASKS: dict[str, Callable[[Call, bool], MaskNode]] = {
    **dict.fromkeys(_COMPARE, _comparison),
    "nseq": _null_safe, "in": _in, "and": _junction, "or": _junction, "not": _not, "xor": _xor,
    "is_null": _is_null, "is_true": _is_true, "like": _like, "may": _may,
}
_CHOICES: dict[str, Callable[[Call], Node]] = {
    "coalesce": _coalesce, "case": _case, "if": _case,  # if(c, a, b) has the arguments of case with one arm
    "cast": _cast, "retype": lambda e: value_node(e.args[0]),
    "greatest": _extreme, "least": _extreme, "told": _with_error}
EXACT = evaluate_exact.Compiler(value_node, mask_node)
