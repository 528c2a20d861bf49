"""Functions of JSON that add to arrays, merge documents, search texts in them, and print them over several lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import INVALID_JSON_ONE_OR_ALL, INVALID_JSON_PATH_ARRAY_CELL
from noria.core.expressions.library.declare import ArgumentType, Function
from noria.core.expressions.library.json import (
    Step,
    in_order,
    members,
    merged,
    parse,
    places,
    show,
    steps,
    unquote,
    without_wildcards,
)
from noria.core.types import JSON, TEXT_BIN


# ------------------------------------------------------------------ arrays
def _editor(edit: Callable[[Any, tuple[Step, ...], Any], Any]) -> Callable[..., str | None]:
    def write(document: str | None, *pairs: str | None) -> str | None:
        if document is None or None in pairs[::2]:
            return None
        value = parse(document)
        for path, new in zip(pairs[::2], pairs[1::2], strict=True):
            value = edit(value, without_wildcards(unquote(str(path))), None if new is None else parse(new))
        return show(value)

    return write


def _changed(value: Any, path: tuple[Step, ...], change: Callable[[Any], Any]) -> Any:
    """Return the value with what is at the path changed; the value itself if nothing is there."""
    if not path:
        return change(value)
    (kind, what), rest = path[0], path[1:]
    if kind == "key":
        if isinstance(value, dict) and what in value:
            return {**value, what: _changed(value[what], rest, change)}
        return value
    items = value if isinstance(value, list) else [value]
    at = what[0] + len(items) if what[0] < 0 else what[0]
    if not 0 <= at < len(items):
        return value
    inner = _changed(items[at], rest, change)
    return [*items[:at], inner, *items[at + 1:]] if isinstance(value, list) else inner


def _append(value: Any, path: tuple[Step, ...], new: Any) -> Any:
    return _changed(value, path, lambda v: [*v, new] if isinstance(v, list) else [v, new])


def _insert(value: Any, path: tuple[Step, ...], new: Any) -> Any:
    """Insert before the cell that the path names, at the end if the array has no such cell."""
    if not path or path[-1][0] != "at":
        raise SqlError(*INVALID_JSON_PATH_ARRAY_CELL, "A path expression is not a path to a cell in an array.")
    place = path[-1][1][0]

    def change(v: Any) -> Any:
        if not isinstance(v, list):
            return v
        at = max(place + len(v), 0) if place < 0 else place
        return [*v[:at], new, *v[at:]]

    return _changed(value, path[:-1], change)


# ------------------------------------------------------------------ merging
def _preserved(a: Any, b: Any) -> Any:
    if isinstance(a, dict) and isinstance(b, dict):
        return {**a, **{k: _preserved(a[k], v) if k in a else v for k, v in b.items()}}
    return [*(a if isinstance(a, list) else [a]), *(b if isinstance(b, list) else [b])]


def merged_preserving(*documents: str) -> str:
    return show(reduce(_preserved, map(parse, documents)))


def merged_patching(*documents: str) -> str:
    return reduce(merged, documents)


# ------------------------------------------------------------------ searching
def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each string in a document."""
    if isinstance(value, str):
        yield place, value
    for inner, there in members(value, place):
        yield from _texts(inner, there)


def search(document: str | None, how: str | None, wanted: str | None, escape: str | None = None, *paths: str | None
           ) -> str | None:
    """Return the path, or an array of the paths, of the strings that are LIKE the wanted text."""
    if document is None or how is None or wanted is None or None in paths:
        return None
    if how.lower() not in ("one", "all"):
        raise SqlError(*INVALID_JSON_ONE_OR_ALL,
                       "The oneOrAll argument to json_search may take these values: 'one' or 'all'")
    from noria.core.expressions.evaluate_text import like_pattern  # that module uses the library

    pattern, value = like_pattern(wanted, escape or "\\"), parse(document)
    found: dict[str, None] = {}
    for path in paths or ("$",):
        for start, place in places(value, steps(str(path))):
            for there, text in _texts(start, place):
                if pattern.fullmatch(text) is not None:
                    if how.lower() == "one":
                        return show(there)
                    found[there] = None
    return None if not found else show(next(iter(found)) if len(found) == 1 else list(found))


# ------------------------------------------------------------------ printing
def pretty(document: str) -> str:
    def lines(value: Any, indent: str) -> str:
        inner = indent + "  "
        if isinstance(value, dict) and value:
            parts = [f"{inner}{json.dumps(k, ensure_ascii=False)}: {lines(value[k], inner)}" for k in in_order(value)]
            return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join(inner + lines(v, inner) for v in value) + f"\n{indent}]"
        return show(value)

    return lines(parse(document), "")


J, M, T = ArgumentType.JSON, ArgumentType.MEMBER, ArgumentType.TEXT
JSON_EDITING: dict[str, Function] = {
    "json_array_append": Function((J, M), JSON, values=_editor(_append), more=True, least=3, sees_null=True,
                                  nullable=True),
    "json_array_insert": Function((J, M), JSON, values=_editor(_insert), more=True, least=3, sees_null=True,
                                  nullable=True),
    "json_merge_preserve": Function((J, J), JSON, values=merged_preserving, more=True),
    "json_merge_patch": Function((J, J), JSON, values=merged_patching, more=True),
    "json_search": Function((J, T, T, T, T), JSON, values=search, more=True, least=3, sees_null=True, nullable=True),
    "json_pretty": Function((J,), TEXT_BIN, values=pretty),
}
