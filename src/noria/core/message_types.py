"""Derives from annotations which classes a message may contain, and the types of their fields (`core/codec.py`).

A message may contain the dataclasses, named tuples and exceptions that a root type mentions, directly or through
fields, and their subclasses.  `MessageLayout` says how objects of one class are split into fields and built from them.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

KNOWN_KINDS = 1_000  # cached combinations of field types of one class: a field of any type makes many
PLAIN = frozenset((type(None), bool, int, float, str, bytes))
Fit = Callable[[Any], Any] | None  # returns the checked value, perhaps converted, or raises; None: anything fits
Narrowed = Mapping[tuple[type, str], Any]


class Malformed(ValueError):
    """Raised for bytes that are no message."""


# ---------------------------------------------------------------- classes
def layouts(roots: Iterable[Any], narrowed: Narrowed) -> tuple[dict[type, MessageLayout], list[type[Enum]]]:
    """Return the layouts of all classes that the root types mention, and all enumerations."""
    found: dict[type, dict[str, Any]] = {}
    enums: list[type[Enum]] = []
    seen: set[type] = set()
    waiting = list(roots)
    while waiting:
        kind = waiting.pop()
        if get_origin(kind) is not None or isinstance(kind, types.UnionType):
            waiting.extend(get_args(kind))
            if isinstance(get_origin(kind), type):
                waiting.append(get_origin(kind))
        elif isinstance(kind, type) and issubclass(kind, Enum):
            enums += [kind] * (kind not in enums)
        elif isinstance(kind, type) and kind not in seen:
            seen.add(kind)
            if _travels(kind):
                found[kind] = fields_of(kind, narrowed)
                waiting.extend(found[kind].values())
            if kind.__module__.startswith("noria.") and not issubclass(kind, Exception):
                waiting.extend(k for k in kind.__subclasses__() if _is_ours(k))
    return {k: MessageLayout(k, tag_of(k), fields) for k, fields in found.items()}, enums


def tag_of(kind: type) -> str:
    """Return a class's tag.  Files contain tags, so a stored class must keep its name and its module's last name."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__qualname__}"


def _travels(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or _is_named_tuple(kind) or (
        issubclass(kind, Exception) and kind.__module__ != "builtins")


def _is_ours(kind: type) -> bool:
    """True if a class is of this package and its module has it under its name.  The decorator of a dataclass with slots
    replaces the original class."""
    named = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind
    return named and kind.__module__.startswith("noria.")


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def fields_of(kind: Any, narrowed: Narrowed) -> dict[str, Any]:
    """Return the fields of a class and their types, in order."""
    if issubclass(kind, Exception) and "__init__" not in vars(kind):
        return {"message": str}
    if issubclass(kind, Exception):
        hints = get_type_hints(kind.__init__)
        names = [n for n in inspect.signature(kind.__init__).parameters if n in hints]
    else:
        hints = get_type_hints(kind)
        names = ([f.name for f in dataclasses.fields(kind) if f.init] if dataclasses.is_dataclass(kind)
                 else list(kind._fields))
    return {name: narrowed.get((kind, name), hints[name]) for name in names}


class MessageLayout:
    """How objects of one class are split into fields and built from them.

    `fields_of`: returns the fields of an object as a tuple.  `checked`: positions of fields that may not be plain.
    `readers`: the codec's reader for each field.  `known`: combinations of field types that passed, each with the
    positions of fields that need a further check.  `encoded_once`: each object is encoded by itself, once.
    `by_value`: a message contains equal objects once.
    """

    def __init__(self, kind: type, tag: str, fields: dict[str, Any]):
        self.kind, self.tag, self.width, self.names = kind, tag, len(fields), tuple(fields)
        self.encoded_once: bool = getattr(kind, "encoded_once", False)
        self.by_value: bool = getattr(kind, "encoded_by_value", False)
        self.checked = tuple(i for i, t in enumerate(fields.values()) if not _plain(t))
        self.types = list(fields.values())
        self.readers: list[Any] = []
        self.known: dict[tuple[type, ...], tuple[int, ...]] = {}
        self.fields_of = _getter(kind, list(fields))
        self.make = _maker(kind, list(fields))
        self._defaults = _defaults(kind, fields)

    def examined(self, kinds: tuple[type, ...]) -> tuple[int, ...]:
        """Check the types of plain fields, and return the positions of the other fields.

        Raises `Malformed` if there are too many or too few fields, or a plain field has the wrong type.
        """
        missing = self._defaults[len(kinds):]
        if len(kinds) > self.width or any(d is None for d in missing):
            raise Malformed(f"{self.tag} with {len(kinds)} fields; it has {self.width}")
        for kind, t in zip(kinds, self.types, strict=False):
            if kind in PLAIN and not _takes(t, kind):
                raise Malformed(f"{self.tag} has a {kind.__name__} where a {t} belongs")
        inside = tuple(i for i, kind in enumerate(kinds) if kind not in PLAIN)
        if len(self.known) >= KNOWN_KINDS:
            self.known.clear()
        self.known[kinds] = inside
        return inside

    def defaults(self, count: int) -> list[Any]:
        """Return the defaults of the fields after the first `count`: fields added later than the bytes were written."""
        return [made() for made in self._defaults[count:] if made is not None]


def _getter(kind: type, names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if issubclass(kind, tuple):
        return tuple
    if issubclass(kind, Exception):
        return _arguments
    if len(names) < 2:
        return lambda value: tuple(getattr(value, n) for n in names)
    return attrgetter(*names)


def _arguments(error: Any) -> tuple[Any, ...]:
    """Return the arguments from which the exception can be built again."""
    found: tuple[Any, ...] = error.__reduce__()[1]
    return found if "__init__" in vars(type(error)) else (str(error),)


def _value(value: Any) -> Callable[[], Any]:
    return lambda: value


def _maker(kind: Any, names: list[str]) -> Callable[[Any], Any]:
    if issubclass(kind, tuple):
        tuple_of: Callable[[Any], Any] = kind._make
        return tuple_of
    if issubclass(kind, Exception):
        return lambda values: kind(*values)
    by_itself = all(f.init for f in dataclasses.fields(kind)) and not hasattr(kind, "__post_init__")
    if not by_itself or hasattr(kind, "__slots__"):
        return lambda values: kind(**dict(zip(names, values, strict=True)))
    new = object.__new__

    def make(values: Any) -> Any:
        made = new(kind)
        made.__dict__.update(zip(names, values))  # noqa: B905  # their number was checked, and this is hot
        return made

    return make


def _defaults(kind: Any, fields: dict[str, Any]) -> list[Callable[[], Any] | None]:
    """Return for each field the function that makes its default, or None if it has none."""
    if issubclass(kind, Exception):
        return [None] * len(fields)
    if issubclass(kind, tuple):
        defaults = kind._field_defaults
        return [_value(defaults[n]) if n in defaults else None for n in fields]
    found: list[Callable[[], Any] | None] = []
    for f in dataclasses.fields(kind):
        if f.init:
            made = None if f.default_factory is dataclasses.MISSING else f.default_factory
            found.append(made if f.default is dataclasses.MISSING else _value(f.default))
    return found


# ---------------------------------------------------------------- types of fields
def _plain(t: Any) -> bool:
    """True if all values of a type are plain, or tuples of plain values."""
    origin, args = get_origin(t), get_args(t)
    if origin is tuple or origin in (Union, types.UnionType):
        return all(a is Ellipsis or _plain(a) for a in args)
    return t in PLAIN or origin is Literal


def plain_parts(t: Any) -> set[type] | None:
    """Return the type of the parts of a tuple of any length if it is plain; otherwise None."""
    origin, args = get_origin(t), get_args(t)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis and args[0] in PLAIN:
        return {args[0]}
    return None


def classes_of(t: Any) -> tuple[type, ...]:
    """Return the classes of a type that is a class or a union of classes, not of plain values; otherwise nothing."""
    args = get_args(t) if get_origin(t) in (Union, types.UnionType) else (t,)
    found = tuple(a for a in args if isinstance(a, type) and get_origin(a) is None and a not in (object, *PLAIN))
    return found if len(found) == len(args) else ()


def _takes(t: Any, kind: type) -> bool:
    """True if a plain value of class `kind` fits the type t.  A bool does not fit int; an int fits float."""
    origin = get_origin(t)
    if t is Any or t is object or isinstance(t, TypeVar):
        return True
    if origin in (Union, types.UnionType):
        return any(_takes(a, kind) for a in get_args(t))
    if origin is Literal:
        return any(type(a) is kind for a in get_args(t))
    return kind is (type(None) if t is None else t) or (t is float and kind is int)


def fit_of(t: Any) -> Fit:
    """Return the function that checks a value of type t.  Raises TypeError if no message can hold the type."""
    origin, args = get_origin(t), get_args(t)
    if t is Any or t is object or isinstance(t, TypeVar):
        return None
    if origin in (Union, types.UnionType):
        return _any_of(args)
    if origin is Literal:
        return _tested(lambda v: v in args, t)
    if origin is tuple:
        return _tuple(args)
    if origin in (list, set, frozenset, Sequence, Collection, Iterable):
        return _collection(origin, args)
    if origin in (dict, Mapping):
        return _mapping(args)
    if origin is np.ndarray:
        return _array(args)
    if isinstance(origin, type) and origin not in (type, Callable):
        return _instance((origin,))
    if t is None or t is type(None):
        return _instance((type(None),))
    if t in PLAIN:
        return _tested(lambda v: _takes(t, type(v)), t)
    if isinstance(t, type):
        return _instance((t,))
    raise TypeError(f"no message can hold a {t}")


def _wrong(value: Any, wanted: str) -> Malformed:
    return Malformed(f"a {type(value).__name__} where a {wanted} belongs")


def _tested(test: Callable[[Any], bool], t: Any) -> Fit:
    def fit(value: Any) -> Any:
        if not test(value):
            raise _wrong(value, str(t))
        return value

    return fit


def _instance(kinds: tuple[type, ...]) -> Fit:
    wanted = " or ".join(k.__name__ for k in kinds)

    def fit(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise _wrong(value, wanted)
        return value

    return fit


def _any_of(args: tuple[Any, ...]) -> Fit:
    if all(isinstance(a, type) and get_origin(a) is None and a not in (object, int, float) for a in args):
        return _instance(args)
    fits = [f for f in map(fit_of, args) if f is not None]
    if len(fits) < len(args):
        return None

    def fit(value: Any) -> Any:
        for one in fits:
            try:
                return one(value)
            except Malformed:
                continue
        raise _wrong(value, " or ".join(map(str, args)))

    return fit


def _tuple(args: tuple[Any, ...]) -> Fit:
    endless = len(args) == 2 and args[1] is Ellipsis
    fits = [fit_of(a) for a in args if a is not Ellipsis]
    one = fits[0] if endless else None

    def fit(value: Any) -> Any:
        if not isinstance(value, tuple | list):
            raise _wrong(value, "tuple")
        if endless:
            return tuple(value) if one is None or not value else tuple([one(v) for v in value])
        if len(value) != len(fits):
            raise Malformed(f"{len(value)} parts where {len(fits)} belong")
        return tuple([v if each is None else each(v) for v, each in zip(value, fits, strict=True)])

    return fit


def _collection(origin: Any, args: tuple[Any, ...]) -> Fit:
    one = fit_of(args[0])
    kinds = (tuple, list) if origin in (list, Sequence) else (tuple, list, set, frozenset)
    make = origin if origin in (list, set, frozenset) else None

    def fit(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise _wrong(value, origin.__name__)
        if one is not None:
            for v in value:
                one(v)
        return value if make is None or type(value) is make else make(value)

    return fit


def _mapping(args: tuple[Any, ...]) -> Fit:
    fits = [fit_of(a) for a in args]

    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "mapping")
        for item in value.items():
            for v, one in zip(item, fits, strict=True):
                if one is not None:
                    one(v)
        return value

    return fit


def _array(args: tuple[Any, ...]) -> Fit:
    wanted = [np.dtype(a) for t in args for a in get_args(t) if isinstance(a, type) and issubclass(a, np.generic)]

    def fit(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or (wanted and value.dtype not in wanted):
            raise _wrong(value, f"array of {wanted}")
        return value

    return fit


