"""Records the shared nodes of a program while views are added and dropped: replaced nodes, and who shares the new ones.

Keeps true: no record refers to a removed node.  A state in use does not change, so its record may name the needs of a
view that was dropped since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from noria.core.limits import KEPT_PLANS
from noria.plan.describing import named
from noria.plan.mir import Join, Mir, renamed
from noria.plan.reuse.joins.chains import joins_of
from noria.plan.reuse.joins.one_copy import copies_in
from noria.plan.reuse.sharing import Fullness, UnsharedLayout, groupings, host, replaced, share
from noria.plan.view import ViewDef


class SharedNodes:
    """The record of shared nodes.  `fullness`: see `sharing`; called once for each plan, then cached."""

    def __init__(self, fullness: Fullness):
        self._fullness = fullness
        self._alone: dict[tuple[Mir, tuple[int, ...], bool], UnsharedLayout] = {}
        self._instead: dict[Mir, Mir] = {}
        self._members: dict[Mir, frozenset[Mir]] = {}

    def plans(self, views: Sequence[ViewDef], standing: Sequence[Mir], full: Callable[[Mir], bool]) -> dict[str, Mir]:
        """Plan the views again, beside the plans `standing`, which do not change.  `full`: whether a node of these is
        full."""
        stay = {g for p in standing for g in groupings(p)}
        instead = {m: p for m, p in self._instead.items() if host(p) in stay}
        others = self._members.keys() - stay  # joins and copies
        if others:
            others &= frozenset[Mir]().union(*(joins_of(p) | copies_in(p) for p in standing))
        members = {m: of for m, of in self._members.items() if m in stay or m in others}
        shared = share(views, self._full, {m: full(m) for m in stay}, instead, standing)
        used = stay.union(*map(groupings, shared.plans.values()))
        self._instead = {m: p for m, p in shared.instead.items() if host(p) in used}
        for m, of in shared.members.items():
            known = members.get(m, frozenset((m,)) if m in stay else frozenset())
            members[m] = of if isinstance(m, Join) else known | of
        self._members = members
        return shared.plans

    def over_standing(self, plan: Mir) -> Mir:
        """The plan over existing shared nodes."""
        return replaced(plan, self._instead) if self._instead else plan

    def known(self) -> tuple[dict[Mir, Mir], dict[Mir, frozenset[Mir]]]:
        """Copies of the record: replaced nodes with the new ones, and the members of each shared node."""
        return dict(self._instead), dict(self._members)

    def take(self, instead: dict[Mir, Mir], members: dict[Mir, frozenset[Mir]]) -> None:
        """Adopt the record of another `SharedNodes`."""
        self._instead, self._members = dict(instead), dict(members)

    def rename_table(self, table: str, name: str) -> None:
        """Rename a table in all recorded plans."""
        self._instead = {renamed(m, table, name): renamed(p, table, name) for m, p in self._instead.items()}
        self._members = {renamed(m, table, name): frozenset(renamed(one, table, name) for one in of)
                         for m, of in self._members.items()}

    def descriptions(self) -> Iterator[tuple[Mir, str, tuple[float, ...]]]:
        """Describe the shared nodes, as (node, text, shares).

        The text of a grouping lists those it replaces; the shares are the fractions of its columns that each of them
        has.  The text of a join lists the tables of the chains that begin with it.
        """
        for plan, of in self._members.items():
            if isinstance(plan, Join):
                tables = sorted(", ".join(sorted(m.table_names)) for m in of)
                yield plan, f"one join instead of {len(of)}, of {'; of '.join(tables)}", ()
            elif len(of) > 1:
                texts = sorted(" of ".join(map(_text, (m, *m.inputs))) for m in of)
                parts = tuple(sorted(min(m.width / plan.width, 1) for m in of))
                yield plan, f"one state instead of {len(of)}: {'; '.join(texts)}", parts

    def _full(self, view: ViewDef, plan: Mir) -> UnsharedLayout:
        which = plan, view.key, view.ranged
        if which not in self._alone:
            if len(self._alone) >= KEPT_PLANS:
                self._alone.clear()
            self._alone[which] = self._fullness(view, plan)
        return self._alone[which]


def _text(plan: Mir) -> str:
    return named(str(plan), [f for i in plan.inputs for f in i.fields])
