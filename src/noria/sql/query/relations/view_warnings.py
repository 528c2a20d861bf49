"""The warnings of CREATE VIEW: parts of the new view that no SELECT can read, and how to read them instead."""

from __future__ import annotations

from noria.core.errors.codes import BAD_FIELD, NOT_SUPPORTED_YET
from noria.plan.view import ViewDef
from noria.sql.query.relations.from_clause import can_be_named, unreadable

Warning_ = tuple[str, int, str]


def warnings_of(view: ViewDef) -> tuple[Warning_, ...]:
    """One warning if FROM cannot read the view, else one for each hidden key that conditions cannot name."""
    if view.internal or view.feed or not (view.key or view.asks):  # `SELECT * FROM v` is the view itself
        return ()
    how = f"POST /views/{view.name}/lookup, or view('{view.name}').lookup in Python, reads it by its key"
    if (why := unreadable(view)) is not None:
        return (("Warning", NOT_SUPPORTED_YET.number,
                 f"No SELECT … FROM {view.name} can read the view: {why}.  The view's own SELECT, with values for its "
                 f"parameters, is answered from it; {how}"),)
    return tuple(("Warning", BAD_FIELD.number,
                  f"SELECT … FROM {view.name} cannot name what the view is looked up by, {_shown(view, k)}, which it "
                  f"does not select: select it under a name of its own; {how}")
                 for k in view.key if k >= view.visible and not can_be_named(view, k))


def _shown(view: ViewDef, key: int) -> str:
    place = view.key.index(key) + 1
    name = view.plan.fields[key].name
    return f"column {name}" if not name.startswith("key") else f"the expression of parameter {place}"
