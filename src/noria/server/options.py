"""Options of the command line, declared on the fields of the settings that they fill.

A field of a settings class is `name: Annotated[type, Option(help)] = default`.  `options` lists the declarations, from
which the command line is made; `settings_from` reads what was written there.  A field without an `Option` is set by
code only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import GenericAlias
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

REQUIRED: Any = ...  # the default of an option that must be written
T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """What the command line adds to a field.  The name, and the type and default of the written value, are the field's
    unless they are given.  Repeatable options are tuples.  `read` turns a written value into the field's.
    """

    help: str
    name: str = ""
    written: Any = None
    default: Any = None
    read: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class DeclaredOption:
    """One option of the command line, complete.  repeatable: it has a list of values."""

    field: str
    name: str  # with its dashes
    written: Any
    default: Any
    help: str
    read: Callable[[Any], Any] | None
    repeatable: bool

    def value(self, written: Any) -> Any:
        """Return the field's value for a written one."""
        if self.repeatable:
            return tuple(map(self.read, written or ())) if self.read else tuple(written or ())
        return self.read(written) if self.read and written is not None else written


def options(settings: type) -> list[DeclaredOption]:
    """Return the options that the fields of a settings class declare, in their order."""
    hints = get_type_hints(settings, include_extras=True)
    declared = []
    for field in fields(settings):
        kind, *extras = get_args(hints[field.name]) if hasattr(hints[field.name], "__metadata__") else (None,)
        for option in extras:
            repeatable = get_origin(kind) is tuple
            written = option.written or kind
            default = option.default or (REQUIRED if field.default is MISSING else field.default)
            optional = default is None or repeatable
            declared.append(DeclaredOption(
                field.name, option.name or "--" + field.name.replace("_", "-"),
                (GenericAlias(list, (written,)) if repeatable else written) | None if optional else written,
                None if repeatable else default, option.help, option.read, repeatable))
    return declared


def settings_from(settings: Callable[..., T], declared: list[DeclaredOption], written: Mapping[str, Any]) -> T:
    """Make the settings from what was written for each field."""
    return settings(**{o.field: o.value(written[o.field]) for o in declared})
