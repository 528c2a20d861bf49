"""Computes the changes between two programs, as a pure function of two outlines.  Call `difference`.

Meanings are compared, not texts.  A view is unchanged if its plan, its key, the names of its columns and the views that
it reads are.  A new column changes only the views that name it or have a `*` (`_as_before`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.plan.mir import tables_of
from noria.plan.view import ViewDef
from noria.sql.program.alteration import Names, alteration, key_of, lost
from noria.sql.program.current_names import with_current_names
from noria.sql.program.outline import Outline
from noria.sql.program.view_plans import StaticCatalog, planned, same_view
from noria.sql.text.syntax import parse_tokens, tokenize


@dataclass(frozen=True)
class ProgramDifference:
    """The changes, as names in their written form, in the order of the programs.

    `altered`: for each table the parts of an ALTER TABLE.  `early`: the views that can be made or replaced before the
    tables change (`_early`).  `left`: tables and views that stay though the new program does not have them.
    `refused`: why changes cannot be made.
    """

    created: Names = ()
    altered: tuple[tuple[str, Names], ...] = ()
    tables_kept: Names = ()
    tables_dropped: Names = ()
    made: Names = ()
    replaced: Names = ()
    early: Names = ()
    views_kept: Names = ()
    views_dropped: Names = ()
    left: Names = ()
    refused: Names = ()

    @property
    def empty(self) -> bool:
        return not (self.created or self.altered or self.tables_dropped or self.made or self.replaced
                    or self.views_dropped)


def difference(have: Outline, want: Outline, drop: bool) -> ProgramDifference:
    """The changes from `have` to `want`.  `drop`: drop tables, columns and views that `want` does not have."""
    refused = list(_clashes(have, want))
    altered: dict[str, Names] = {}
    for name, table in want.tables.items():
        if (was := have.tables.get(name)) is not None:
            parts, wrong = alteration(was, table, drop)
            refused += wrong
            if parts:
                altered[was.name] = parts
    changed = _changed(have, want)
    early = _early(have, want, changed)
    gone_tables = tuple(t.name for n, t in have.tables.items() if n not in want.tables)
    gone_views = tuple(v.definition.name for n, v in have.views.items() if n not in want.views)
    if not drop:
        refused += _stranded(have, want, changed)

    def views(among: Callable[[str], bool]) -> Names:
        return tuple(v.definition.name for n, v in want.views.items() if among(n))

    return ProgramDifference(
        tuple(t.name for n, t in want.tables.items() if n not in have.tables), tuple(altered.items()),
        tuple(t.name for n, t in have.tables.items() if n in want.tables and t.name not in altered),
        gone_tables if drop else (), views(lambda n: n not in have.views), views(lambda n: n in changed),
        views(lambda n: n in early),
        views(lambda n: n in have.views and n not in changed),
        gone_views if drop else (), () if drop else (*gone_tables, *gone_views), tuple(refused))


def _clashes(have: Outline, want: Outline) -> Iterator[str]:
    for name, table in want.tables.items():
        if name in have.views:
            yield f"'{table.name}' is a view, and a table in the new program: drop the view first"
    for name, view in want.views.items():
        if name in have.tables:
            yield f"'{view.definition.name}' is a table, and a view in the new program: drop the table first"


# ------------------------------------------------------------------ views
def _changed(have: Outline, want: Outline) -> set[str]:
    """Folded names of the views of both programs that must be replaced."""
    changed: set[str] = set()
    for name, view in want.views.items():
        was = have.views.get(name)
        if was is not None and (view.used & changed or not unchanged(name, have, want)):
            changed.add(name)
    return changed


def unchanged(name: str, have: Outline, want: Outline) -> bool:
    """Whether the view means the same in both programs, provided that the views it reads do."""
    was, now = have.views[name], want.views[name]
    if same_view(was.definition, now.definition):
        return True
    if not now.used <= have.views.keys():
        return False
    before = {n: t.as_of(was.stage) for n, t in have.tables.items()}
    found = _as_before(name, want, before, {n: have.views[n].definition for n in now.used})
    if found is not None and same_view(was.definition, found):
        return True
    there, then = _at_last(name, have), _at_last(name, want)
    return (there is not None and then is not None and same_view(there, then)) or _untouched(name, have, want)


def _untouched(name: str, have: Outline, want: Outline) -> bool:
    """Whether neither text uses a changed column, and both mean the same over the new tables."""
    there = {n: lost(t, want.tables[n]) for n, t in have.tables.items() if n in want.tables}
    catalog = StaticCatalog(_over(want, _hide, there), {n: v.definition for n, v in want.views.items()})
    was, now = have.views[name].text, want.views[name].text
    try:
        return any(there.values()) and not _has_star(was) and same_view(planned(was, catalog), planned(now, catalog))
    except SqlError:  # one names a changed or dropped column
        return False


def _at_last(name: str, program: Outline) -> ViewDef | None:
    """The view over the program's final tables; None if its text cannot be printed with their names."""
    view, views = program.views[name], {n: v.definition for n, v in program.views.items()}
    text = with_current_names(view.text, view.stage, program.tables, views)
    return None if text is None else planned(text, StaticCatalog(program.tables, views))


def _early(have: Outline, want: Outline, changed: set[str]) -> set[str]:
    """Folded names of the views that can be made before the tables change.

    Such a view needs no new table, key or column, no table that drops or converts a column, and no view that does.
    """
    early: dict[str, ViewDef] = {}
    there = {n for n, t in have.tables.items() if n in want.tables and key_of(t) == key_of(want.tables[n])
             and not lost(t, want.tables[n])}
    for name, view in want.views.items():
        if name in have.views and name not in changed:
            continue
        known = {n: early[n] if n in early else have.views[n].definition for n in view.used
                 if n in early or (n in have.views and n not in changed)}
        tables = {t.lower() for t in tables_of(view.definition.plan)}
        if view.used <= known.keys() and tables <= there:
            found = _as_before(name, want, have.tables, known)
            if found is not None:
                early[name] = found
    return set(early)


def _as_before(name: str, want: Outline, before: Mapping[str, TableDef], views: Mapping[str, ViewDef]
               ) -> ViewDef | None:
    """Plan the view over `views` and over its tables without the columns that `before` lacks.

    None if these columns make a difference to the view.  They make none if the view has no `*`, and means the same when
    they have names that no text can have.
    """
    wanted = want.views[name]
    new = {n: _new(t, before[n]) for n, t in want.tables.items() if n in before}
    cut, hidden = _over(want, _cut, new), _over(want, _hide, new)
    if cut == want.tables:
        return planned(wanted.text, StaticCatalog(cut, views))
    theirs = {n: want.views[n].definition for n in wanted.used}
    try:
        if _has_star(wanted.text) or not same_view(wanted.definition,
                                                   planned(wanted.text, StaticCatalog(hidden, theirs))):
            return None
        return planned(wanted.text, StaticCatalog(cut, views))
    except SqlError:  # it names a new column
        return None


def _over(want: Outline, change: Callable[[TableDef, set[str]], TableDef], new: Mapping[str, set[str]]
          ) -> dict[str, TableDef]:
    return {n: change(t, new[n]) if new.get(n) else t for n, t in want.tables.items()}


def _new(table: TableDef, before: TableDef) -> set[str]:
    """Folded names of the columns that the table did not have before."""
    return {c.name.lower() for c in table.columns} - {c.name.lower() for c in before.columns}


def _hide(table: TableDef, new: set[str]) -> TableDef:
    """The table, with names for its new columns that no text can have."""
    columns = [replace(c, name=f"{table.name}\0{c.name}") if c.name.lower() in new else c for c in table.columns]
    return replace(table, columns=tuple(columns))


def _cut(table: TableDef, new: set[str]) -> TableDef:
    """The table without its new columns, which come last."""
    width = sum(c.name.lower() not in new for c in table.columns)
    indexes = tuple(i for i in table.indexes if max(i.columns) < width)
    fulltext = tuple(i for i in table.fulltext if max(i.columns) < width)
    return replace(table, columns=table.columns[:width], indexes=indexes, fulltext=fulltext)


def current_view(text: str, as_of: int, tables: Mapping[str, TableDef], views: Mapping[str, ViewDef]) -> ViewDef | None:
    """Plan a running view's text over the current tables.  None if it meant something else as of change `as_of`.

    It means the same if no table that it reads has changed since.  Otherwise it must have no `*`, and use only columns
    that had the same position and name then.
    """
    then = {n: t for n, t in tables.items()
            if t.made <= as_of and ((past := t.then(as_of)) is None or past.name.lower() == n)}
    new = {n: {name.lower() for at, name in t.shape if (at, name) not in t.as_of(as_of).shape} for n, t in then.items()}
    hidden = {n: _hide(t, new[n]) for n, t in then.items()}
    try:
        found = planned(text, StaticCatalog(then, views))
        if all(tables[n].shape == tables[n].as_of(as_of).shape for n in map(str.lower, tables_of(found.plan))):
            return found
        return None if _has_star(text) or not same_view(found, planned(text, StaticCatalog(hidden, views))) else found
    except SqlError:  # a name has become ambiguous, or does not exist
        return None


def _has_star(text: str) -> bool:
    tree = parse_tokens(tokenize(text), text).tree
    return any(not isinstance(s.parent, exp.Count) for s in tree.find_all(exp.Star))


def _stranded(have: Outline, want: Outline, changed: set[str]) -> Iterator[str]:
    """Messages about views that stay though the new program lacks them, and that read a view to be replaced."""
    for name, view in have.views.items():
        reads = sorted(view.used & changed) if name not in want.views else []
        if reads:
            yield (f"view '{view.definition.name}' is not in the new program and reads "
                   f"{', '.join(map(repr, reads))}, which changes: put it into the program, or drop it")
