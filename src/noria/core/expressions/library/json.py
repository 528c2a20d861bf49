"""Functions of JSON.  A document is its normalised text, as MySQL prints it, so that equal documents are one symbol.

Keys are ordered by length, then by bytes: `{"a": 1, "bb": [true, null]}`.  Functions parse the text and print their
results.  Paths: `$.key`, `$."a key"`, `$[0]`, `$[last]`, `$[last-1]`, `$[1 to 2]`, `$[*]`, `$.*`, `$**.key`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import (
    INVALID_JSON_ONE_OR_ALL,
    INVALID_JSON_PATH,
    INVALID_JSON_PATH_ARRAY_CELL,
    INVALID_JSON_PATH_WILDCARD,
    INVALID_JSON_TEXT,
    JSON_DOCUMENT_NULL_KEY,
    WRONG_PARAMCOUNT_TO_NATIVE_FCT,
)
from noria.core.expressions.library.declare import ArgumentType, Function
from noria.core.types import BIGINT, BOOL, JSON, TEXT, TEXT_BIN

_STEP = re.compile(r"""\s*(?:\.\s*(?:(?P<name>[^\W\d][\w$]*|\$[\w$]*)|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<names>\*))"""
                   r"""|\[\s*(?:(?P<all>\*)|(?P<at>(?:last\s*(?:-\s*\d+)?|\d+)(?:\s+to\s+(?:last\s*(?:-\s*\d+)?|\d+))?)\s*)\]"""
                   r"""|(?P<deep>\*\*))""")
_NAME = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
Step = tuple[str, Any]


# ------------------------------------------------------------------ documents
def parse(text: str) -> Any:
    """Parse a document.  Raises SqlError 3140 if the text is not JSON."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as e:
        raise SqlError(*INVALID_JSON_TEXT, f"Invalid JSON text: {e}") from None


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def show(value: Any) -> str:
    """Print a document as MySQL does."""
    if isinstance(value, dict):
        keys = in_order(value)
        return "{" + ", ".join(f"{_text(k)}: {show(value[k])}" for k in keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return repr(value).replace("e+", "e")
    return "null" if value is None else "true" if value is True else "false" if value is False else str(value)


def in_order(value: dict[str, Any]) -> list[str]:
    """The keys of an object in the order in which it is printed."""
    return sorted(value, key=lambda k: (len(k.encode()), k.encode()))


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def normalised(text: str) -> str:
    return show(parse(text))


def quote(text: str) -> str:
    """Return a text as a JSON string."""
    return _text(text)


def unquote(text: str) -> str:
    """Return the text of a JSON string; any other document unchanged."""
    if not (len(text) > 1 and text[0] == text[-1] == '"'):
        return text
    value = parse(text)
    return value if isinstance(value, str) else text


# ------------------------------------------------------------------ paths
@lru_cache(maxsize=1024)
def steps(path: str) -> tuple[Step, ...]:
    """Parse a path into steps: ("key", name), ("keys", None), ("at", (first, last)), ("all", None), ("deep", None).

    Raises SqlError 3143 for an invalid path.
    """
    path = path.strip()
    found: list[Step] = []
    at = 1
    if not path.startswith("$"):
        raise _bad_path(path, 0)
    while at < len(path):
        m = _STEP.match(path, at)
        if m is None or (m["deep"] and m.end() == len(path)):
            raise _bad_path(path, at)
        if m["name"] is not None or m["quoted"] is not None:
            found.append(("key", m["name"] if m["name"] is not None else json.loads(m["quoted"])))
        elif m["at"] is not None:
            first, _, last = re.sub(r"\s+", " ", m["at"].strip()).partition(" to ")
            found.append(("at", (_place(first), _place(last) if last else None)))
        else:
            found.append(("keys" if m["names"] else "all" if m["all"] else "deep", None))
        at = m.end()
    return tuple(found)


def _place(text: str) -> int:
    """Parse an index.  An index from the end is negative: `last` is -1."""
    text = text.replace(" ", "")
    return -1 - int(text[5:] or 0) if text.startswith("last") else int(text)


def _bad_path(path: str, at: int) -> SqlError:
    return SqlError(*INVALID_JSON_PATH,
                    f"Invalid JSON path expression. The error is around character position {at + 1} "
                    f"of '{path}'")


def _many(path: tuple[Step, ...]) -> bool:
    """True if a path can lead to several values."""
    return any(kind in ("keys", "all", "deep") or (kind == "at" and what[1] is not None) for kind, what in path)


def members(value: Any, place: str) -> Iterator[tuple[Any, str]]:
    """Yield the members of an array or object with their paths.  place: its own path."""
    if isinstance(value, list):
        for i, v in enumerate(value):
            yield v, f"{place}[{i}]"
    elif isinstance(value, dict):
        for key in in_order(value):
            yield value[key], f"{place}.{key if _NAME.fullmatch(key) else _text(key)}"


def places(value: Any, path: tuple[Step, ...]) -> list[tuple[Any, str]]:
    """Return the values to which a path leads with their own paths, each once, however often `**` meets it."""
    found = {"$": value}
    for step in path:
        found = {there: v for place, inner in found.items() for v, there in _next(inner, place, step)}
    return [(v, place) for place, v in found.items()]


def _next(value: Any, place: str, step: Step) -> Iterator[tuple[Any, str]]:
    """Yield where one step of a path leads, with the paths."""
    kind, what = step
    if kind == "deep":
        yield value, place
        for inner, there in members(value, place):
            yield from _next(inner, there, step)
    elif kind in ("key", "keys"):
        if isinstance(value, dict):
            yield from (m for key, m in zip(in_order(value), members(value, place), strict=True)
                        if kind == "keys" or key == what)
    elif isinstance(value, list):
        yield from _picked(list(members(value, place)), kind, what, True)
    else:
        yield from _picked([(value, place)], kind, what, False)


def reached(value: Any, path: tuple[Step, ...]) -> Iterator[Any]:
    """Yield the values to which a path leads."""
    if sum(kind == "deep" for kind, _ in path) > 1:
        yield from (v for v, _ in places(value, path))
        return
    if not path:
        yield value
        return
    (kind, what), rest = path[0], path[1:]
    if kind == "key":
        if isinstance(value, dict) and what in value:
            yield from reached(value[what], rest)
    elif kind == "keys":
        if isinstance(value, dict):
            for key in in_order(value):
                yield from reached(value[key], rest)
    elif kind == "deep":
        yield from reached(value, rest)
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for v in inner:
            yield from reached(v, path)
    else:
        items = value if isinstance(value, list) else [value]
        for v in _picked(items, kind, what, isinstance(value, list)):
            yield from reached(v, rest)


def _picked(items: list[Any], kind: str, what: Any, is_list: bool) -> list[Any]:
    """Return the selected items.  A value that is no array counts as an array of itself, but not for [*]."""
    if kind == "all":
        return items if is_list else []
    first, last = ((p + len(items) if p < 0 else p) for p in (what[0], what[0] if what[1] is None else what[1]))
    return items[max(first, 0) : last + 1] if last >= 0 and (first >= 0 or what[1] is not None) else []


# ------------------------------------------------------------------ functions
def extract(document: str, *paths: str) -> str | None:
    value = parse(document)
    wanted = [steps(p) for p in paths]
    found = [v for path in wanted for v in reached(value, path)]
    if not found:
        return None
    return show(found) if len(paths) > 1 or _many(wanted[0]) else show(found[0])


def extract_text(document: str, path: str) -> str | None:
    """Return the text of column->>path.  A JSON null yields the text null."""
    found = extract(document, path)
    return None if found is None else unquote(found)


def value_at(document: str, path: str) -> str | None:
    """Return a scalar as text, as JSON_VALUE does; NULL for a JSON null, an array or an object."""
    found = list(reached(parse(document), steps(path)))
    if len(found) != 1 or found[0] is None or isinstance(found[0], (dict, list)):
        return None
    return found[0] if isinstance(found[0], str) else show(found[0])


def _at(document: str, path: str) -> list[Any]:
    return list(reached(parse(document), without_wildcards(path)))


def without_wildcards(path: str) -> tuple[Step, ...]:
    """Parse a path that leads to at most one value.  Raises SqlError 3149 for another one."""
    found = steps(path)
    if _many(found):
        raise SqlError(*INVALID_JSON_PATH_WILDCARD,
                       f"In this situation, path expressions may not contain the * and ** tokens or an "
                       f"array range: '{path}'")
    return found


def length(document: str, path: str = "$") -> int | None:
    found = _at(document, path)
    return None if not found else len(found[0]) if isinstance(found[0], (dict, list)) else 1


def depth(document: str) -> int:
    def of(v: Any) -> int:
        inner = v.values() if isinstance(v, dict) else v if isinstance(v, list) else ()
        return 1 + max(map(of, inner), default=0)

    return of(parse(document))


def type_of(document: str) -> str:
    value = parse(document)
    names = {dict: "OBJECT", list: "ARRAY", str: "STRING", bool: "BOOLEAN", int: "INTEGER", float: "DOUBLE"}
    return "NULL" if value is None else names[type(value)]


def valid(text: str) -> bool:
    try:
        parse(text)
    except SqlError:
        return False
    return True


def keys(document: str, path: str = "$") -> str | None:
    found = _at(document, path)
    if not found or not isinstance(found[0], dict):
        return None
    return show(in_order(found[0]))


def equal(a: Any, b: Any) -> bool:
    """True if two values are equal.  1 equals 1.0 but not true."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return bool(type(a) is type(b) or (isinstance(a, (int, float)) and isinstance(b, (int, float)))) and bool(a == b)


def _has(target: Any, candidate: Any) -> bool:
    if isinstance(target, list):
        wanted = candidate if isinstance(candidate, list) else [candidate]
        return all(any(_has(t, c) if isinstance(t, list) == isinstance(c, list) else equal(t, c) for t in target)
                   for c in wanted)
    if isinstance(target, dict):
        return isinstance(candidate, dict) and all(k in target and _has(target[k], v) for k, v in candidate.items())
    return not isinstance(candidate, (list, dict)) and equal(target, candidate)


def contains(target: str, candidate: str, path: str = "$") -> bool | None:
    found = _at(target, path)
    return _has(found[0], parse(candidate)) if found else None


def contains_path(document: str, how: str, *paths: str) -> bool:
    if how.lower() not in ("one", "all"):
        raise SqlError(*INVALID_JSON_ONE_OR_ALL,
                       "The oneOrAll argument to json_contains_path may take these values: 'one' or "
                       "'all'")
    value = parse(document)
    hits = [any(True for _ in reached(value, steps(p))) for p in paths]
    return any(hits) if how.lower() == "one" else all(hits)


def member_of(candidate: str, target: str) -> bool:
    value, wanted = parse(target), parse(candidate)
    return any(equal(v, wanted) for v in value) if isinstance(value, list) else equal(value, wanted)


def overlaps(a: str, b: str) -> bool:
    x, y = parse(a), parse(b)
    if isinstance(x, dict) and isinstance(y, dict):
        return any(k in y and equal(v, y[k]) for k, v in x.items())
    left, right = (v if isinstance(v, list) else [v] for v in (x, y))
    return any(equal(v, w) for v in left for w in right)


def made_array(*members: str | None) -> str:
    return show([None if m is None else parse(m) for m in members])


def made_object(*pairs: str | None) -> str:
    if len(pairs) % 2:
        raise SqlError(*WRONG_PARAMCOUNT_TO_NATIVE_FCT,
                       "Incorrect parameter count in the call to native function 'json_object'")
    made: dict[str, Any] = {}
    for name, member in zip(pairs[::2], pairs[1::2], strict=True):
        if name is None:
            raise SqlError(*JSON_DOCUMENT_NULL_KEY, "JSON documents may not contain NULL member names")
        key = parse(name)
        made[key if isinstance(key, str) else show(key)] = None if member is None else parse(member)
    return show(made)


# ------------------------------------------------------------------ JSON_ARRAYAGG and JSON_OBJECTAGG
def item(member: str | None) -> str:
    """Return the text of a member of an array."""
    return "null" if member is None else normalised(member)


def pair(key: str | None, member: str | None) -> str:
    """Return the text of a member of an object."""
    if key is None:
        raise SqlError(*JSON_DOCUMENT_NULL_KEY, "JSON documents may not contain NULL member names")
    return f"{_text(key)}: {item(member)}"


def listed(items: str) -> str:
    """Make an array of texts that `item` returned, joined by commas."""
    return f"[{items}]"


def paired(pairs: str) -> str:
    """Make an object of texts that `pair` returned, joined by commas.  Of a repeated key the last value stays."""
    return normalised(f"{{{pairs}}}")


def _changed(value: Any, path: tuple[Step, ...], new: Any, how: str) -> Any:
    """Return the value with another one at the path.  how: set, insert (if the path has no value), replace, remove."""
    if not path:
        return value if how == "insert" else new
    (kind, what), rest = path[0], path[1:]
    if kind == "key" and isinstance(value, dict):
        if what in value:
            if how == "remove" and not rest:
                return {k: v for k, v in value.items() if k != what}
            return {**value, what: _changed(value[what], rest, new, how)}
        return {**value, what: new} if not rest and how in ("set", "insert") else value
    if kind == "at":
        return _changed_item(value, what[0], rest, new, how)
    return value


def _changed_item(value: Any, place: int, rest: tuple[Step, ...], new: Any, how: str) -> Any:
    items = value if isinstance(value, list) else [value]
    at = place + len(items) if place < 0 else place
    if 0 <= at < len(items):
        if how == "remove" and not rest:
            return items[:at] + items[at + 1 :] if isinstance(value, list) else value
        changed = [*items[:at], _changed(items[at], rest, new, how), *items[at + 1 :]]
        return changed if isinstance(value, list) else changed[0]
    if rest or how not in ("set", "insert"):
        return value
    return [*items, new] if at > 0 else [new, *items]


def _writer(how: str) -> Any:
    def write(document: str | None, *pairs: str | None) -> str | None:
        if document is None or None in pairs[::2]:
            return None
        value = parse(document)
        for path, new in zip(pairs[::2], pairs[1::2], strict=True):
            _at(document, str(unquote(str(path))))  # raises for wildcards
            value = _changed(value, steps(unquote(str(path))), None if new is None else parse(new), how)
        return show(value)

    return write


def removed(document: str, *paths: str) -> str:
    value = parse(document)
    for path in paths:
        if not steps(path):
            raise SqlError(*INVALID_JSON_PATH_ARRAY_CELL, "The path expression '$' is not allowed in this context.")
        _at(document, path)
        value = _changed(value, steps(path), None, "remove")
    return show(value)


def merged(a: str, b: str) -> str:
    """Merge two documents as JSON_MERGE_PATCH does."""
    def patch(x: Any, y: Any) -> Any:
        if not isinstance(y, dict):
            return y
        out = dict(x) if isinstance(x, dict) else {}
        for k, v in y.items():
            if v is None:
                out.pop(k, None)
            else:
                out[k] = patch(out.get(k), v)
        return out

    return show(patch(parse(a), parse(b)))


J, M, T = ArgumentType.JSON, ArgumentType.MEMBER, ArgumentType.TEXT
JSONS: dict[str, Function] = {
    "json_extract": Function((J, T), JSON, values=extract, more=True, nullable=True),
    "json_extract_text": Function((J, T), TEXT_BIN, values=extract_text, nullable=True, internal=True),
    "json_value": Function((J, T), TEXT_BIN, values=value_at, nullable=True),
    "json_unquote": Function((T,), TEXT_BIN, values=unquote),
    "json_quote": Function((T,), TEXT_BIN, values=quote),
    "json_length": Function((J, T), BIGINT, values=length, least=1, nullable=True),
    "json_depth": Function((J,), BIGINT, values=depth),
    "json_type": Function((J,), TEXT, values=type_of),
    "json_valid": Function((T,), BOOL, values=valid),
    "json_keys": Function((J, T), JSON, values=keys, least=1, nullable=True),
    "json_contains": Function((J, J, T), BOOL, values=contains, least=2, nullable=True),
    "json_contains_path": Function((J, T, T), BOOL, values=contains_path, more=True),
    "json_overlaps": Function((J, J), BOOL, values=overlaps),
    "member_of": Function((M, J), BOOL, values=member_of, internal=True),
    "json_array": Function((M,), JSON, values=made_array, more=True, least=0, sees_null=True),
    "json_object": Function((M,), JSON, values=made_object, more=True, least=0, sees_null=True),
    "json_item": Function((M,), JSON, values=item, sees_null=True, internal=True),
    "json_pair": Function((T, M), JSON, values=pair, sees_null=True, internal=True),
    "json_listed": Function((ArgumentType.STRING,), JSON, values=listed, internal=True),
    "json_paired": Function((ArgumentType.STRING,), JSON, values=paired, internal=True),
    "json_set": Function((J, M), JSON, values=_writer("set"), more=True, sees_null=True, nullable=True),
    "json_insert": Function((J, M), JSON, values=_writer("insert"), more=True, sees_null=True, nullable=True),
    "json_replace": Function((J, M), JSON, values=_writer("replace"), more=True, sees_null=True, nullable=True),
    "json_remove": Function((J, T), JSON, values=removed, more=True),
}
