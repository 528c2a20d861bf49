"""Reads prepared groups of formats 1 to 3, which were pickles, without unpickling; once, when the format is raised.

A pickle is a program for a stack machine.  This machine runs only the instructions that build plain values and objects
of the classes below.  It imports nothing, and calls only what the table `_MADE` names.  The result is checked like
any message, by encoding and decoding it (`prepared.GROUPS`).

Accepted: groups of Insert, Update, Delete, Clear, Move and Load with plain values, decimals, dates and expressions.
Rejected: everything else, including Arrow rows; the version that wrote such a group must decide it first.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from noria.core import statements
from noria.core.errors import SqlError
from noria.core.expressions import expr
from noria.core.types import Collation, Kind, SqlType

_MARK = object()
_TUPLES = (statements.Insert, statements.Update, statements.Delete, statements.Clear, statements.Move, statements.Load,
           statements.WriteResult)
_OBJECTS = (expr.Col, expr.Const, expr.Call, expr.Param)
_MADE: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "object"): object, ("decimal", "Decimal"): Decimal, ("datetime", "timedelta"): timedelta,
    ("datetime", "date"): lambda packed: _from_state(date, packed),
    ("datetime", "datetime"): lambda packed: _from_state(datetime, packed),
    ("datetime", "time"): lambda packed: _from_state(time, packed),
    **{(c.__module__, c.__name__): c for c in (*_TUPLES, *_OBJECTS, SqlType, Kind, Collation, SqlError)}}


class OlderGroup(ValueError):
    """The pickle is not a prepared group; the message is the reason."""


def _from_state(kind: Any, packed: bytes) -> Any:
    """Build a date or time from its pickled bytes."""
    if type(packed) is not bytes or len(packed) not in (4, 6, 10):
        raise OlderGroup(f"no {kind.__name__}")
    return kind(packed)


def read(data: bytes) -> Any:
    """Read the pickled value.  Raises `OlderGroup` for anything that is not accepted."""
    try:
        return _Machine().run(data)
    except OlderGroup:
        raise
    except Exception as e:  # the instructions do not fit together
        raise OlderGroup(f"{type(e).__name__}: {e}") from e


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: list[Any] = []

    def run(self, data: bytes) -> Any:
        for instruction, argument, _ in pickletools.genops(data):
            name = instruction.name
            if name == "STOP":
                (found,) = self._stack
                return found
            if name in _VALUES:
                self._stack.append(argument)
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name]())
            elif (step := _STEPS.get(name)) is not None:
                step(self, argument)
            else:
                raise OlderGroup(f"the instruction {name}")
        raise OlderGroup("no end")

    def pop(self, count: int = 1) -> list[Any]:
        if count > len(self._stack):
            raise OlderGroup("an empty stack")
        taken = self._stack[len(self._stack) - count:]
        del self._stack[len(self._stack) - count:]
        return taken

    def to_mark(self) -> list[Any]:
        at = max(i for i, v in enumerate(self._stack) if v is _MARK)
        taken = self._stack[at + 1:]
        del self._stack[at:]
        return taken

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def memoize(self, _: Any) -> None:
        self._memo.append(self._stack[-1])

    def get(self, at: Any) -> None:
        self.push(self._memo[at])

    def named(self, _: Any) -> None:
        module, name = self.pop(2)
        if (module, name) not in _MADE:
            raise OlderGroup(f"{module}.{name}"[:200])
        self.push(_MADE[module, name])

    def reduce(self, _: Any) -> None:
        made, args = self.pop(2)
        if made not in _MADE.values() or made is object or made in _OBJECTS or type(args) is not tuple:
            raise OlderGroup(f"a call of {made!r}"[:200])
        self.push(made(*args))

    def new(self, _: Any) -> None:
        made, args = self.pop(2)
        if made in _TUPLES and type(args) is tuple:
            self.push(made(*args))
        elif made in _OBJECTS and args == ():
            self.push(object.__new__(made))
        else:
            raise OlderGroup(f"a new {made!r} of {args!r}"[:200])

    def build(self, _: Any) -> None:
        thing, state = self.pop(2)
        if type(thing) not in _OBJECTS or type(state) is not dict or not state.keys() <= _FIELDS[type(thing)]:
            raise OlderGroup("a state")
        vars(thing).update(state)
        self.push(thing)

    def append(self, values: list[Any]) -> None:
        if not self._stack or type(self._stack[-1]) is not list:
            raise OlderGroup("no list")
        self._stack[-1].extend(values)

    def set_items(self, items: list[Any]) -> None:
        if not self._stack or type(self._stack[-1]) is not dict:
            raise OlderGroup("no dict")
        self._stack[-1].update(zip(items[::2], items[1::2], strict=True))


_FIELDS: dict[type, set[str]] = {c: set(c.__dataclass_fields__) for c in _OBJECTS}
_VALUES = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BININT", "BININT1", "BININT2", "LONG1", "LONG4",
           "BINFLOAT", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_TUPLE": tuple, "EMPTY_LIST": list,
    "EMPTY_DICT": dict, "MARK": lambda: _MARK}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda m, _: None, "FRAME": lambda m, _: None,
    "TUPLE": lambda m, _: m.push(tuple(m.to_mark())), "TUPLE1": lambda m, _: m.push(tuple(m.pop(1))),
    "TUPLE2": lambda m, _: m.push(tuple(m.pop(2))), "TUPLE3": lambda m, _: m.push(tuple(m.pop(3))),
    "MEMOIZE": _Machine.memoize, "BINGET": _Machine.get, "LONG_BINGET": _Machine.get,
    "STACK_GLOBAL": _Machine.named, "REDUCE": _Machine.reduce, "NEWOBJ": _Machine.new, "BUILD": _Machine.build,
    "APPEND": lambda m, _: m.append(m.pop()), "APPENDS": lambda m, _: m.append(m.to_mark()),
    "SETITEM": lambda m, _: m.set_items(m.pop(2)), "SETITEMS": lambda m, _: m.set_items(m.to_mark())}
