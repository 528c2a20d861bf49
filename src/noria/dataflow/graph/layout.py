"""Decides which states are full or partial, which indexes they have, and which indexes depend on the keys of which.

Call `plan`, a pure function of the graph (sections 4.2, 4.5; rule R17). The engine calls it after every change of
the program.

A stateful node is partial if every pull of its keys can be planned through the operators above it. Otherwise it
is full, and so is every stateful node above it. While it plans a pull, `plan` records for each index which nodes
depend on its keys. Evictions follow only these records (rule R7).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from noria.dataflow.graph.nodes import Columns, DependentIndex, Node, PathStep, Untraceable
from noria.dataflow.graph.ranges import sources


class _MustBeFull(Untraceable):
    """The pulls of a node itself cannot be planned. Once the node is full, the nodes that pull from it may still
    be partial."""


@dataclass
class Layout:
    """The result of `plan`: for each node, what the pulls of all readers require."""

    full: dict[Node, str] = field(default_factory=dict)  # full nodes and why
    indexes: defaultdict[Node, dict[Columns, None]] = field(default_factory=lambda: defaultdict(dict))
    users: defaultdict[Node, defaultdict[Columns, list[DependentIndex]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    primaries: defaultdict[Node, set[int]] = field(default_factory=lambda: defaultdict(set))
    through: defaultdict[Node, defaultdict[int, list[DependentIndex]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    full_below: set[Node] = field(default_factory=set)
    kept: set[Node] = field(default_factory=set)  # base tables that joins look up in: kept in memory
    pulled: defaultdict[Node, set[Columns]] = field(default_factory=lambda: defaultdict(set))
    ranged: defaultdict[Node, set[Columns]] = field(default_factory=lambda: defaultdict(set))  # read by ranges
    findable: set[tuple[Node, Columns]] = field(default_factory=set)  # stored rows and their columns


def plan(nodes: Iterable[Node], readers: Iterable[tuple[Node, Columns]], stay_full: Iterable[Node],
         ranged: Container[Node] = ()) -> Layout:
    """Return the layout of a graph whose leaves are read by the columns in `readers`.

    `stay_full`: nodes that are full already and remain so, since a full state never becomes partial under its
    users. `ranged`: leaves that are read by ranges of their only key column. Raises ValueError if a lookup cannot
    be planned at all.
    """
    nodes, readers = list(nodes), list(readers)
    full: dict[Node, str] = {}
    for n in stay_full:
        _make_full(full, n, n.why_full)
    while True:
        out, before = Layout(full=full), len(full)
        try:
            for n, cols in readers:
                _require(out, n, cols)
                if n in ranged:
                    _ranged(out, n, cols)
            _full_lookups(out, nodes)
            return out
        except Untraceable as e:
            _make_full(full, e.node, e.why)
            if len(full) == before:
                raise ValueError(f"no lookup can be planned at {e.node}: {e.why}") from e


def is_thin(n: Node) -> bool:
    """Whether an exchange may store no rows (rule R16).

    It may if, on every path below it and before any lookup, there is a partial state which never pulls a key
    twice that it holds.
    """
    return n.op.remote and not n.full and _ends_in_states(n)


def _ends_in_states(n: Node) -> bool:
    return all(not c.op.lookups() and not c.op.remote and (c.op.stateful or _ends_in_states(c)) for c, _ in n.children)


def coarser(n: Node) -> dict[Columns, list[Columns]]:
    """For each index whose keys are pulled, list the indexes over a proper subset of its columns: their keys
    answer for its keys."""
    pulled = [i for i in n.indexes if i in n.pulled]
    fewer = {i: [few for few in pulled if len(few) < len(i) and set(few) < set(i)] for i in pulled}
    return {i: few for i, few in fewer.items() if few}


def _make_full(full: dict[Node, str], n: Node, why: str) -> None:
    if n.op.stateful and n.parents:
        full.setdefault(n, why)
    for p in n.parents:
        _make_full(full, p, f"n{n.id} below it is full" if n.op.stateful else why)


def _require(out: Layout, n: Node, cols: Columns) -> None:
    """Require that n's state has an index by cols whose keys can be made present."""
    if cols in out.pulled[n]:
        return
    if not n.op.finds(cols):
        raise Untraceable(n, f"no index over n{n.id} can have {', '.join(n.fields[c].name for c in cols)}")
    out.pulled[n].add(cols)
    if cols:
        out.indexes[n][cols] = None
    if n in out.full or not n.parents:
        return
    try:
        if not cols:
            raise Untraceable(n, "it is read without a key")
        for need in n.op.needs(n, cols):
            _need(out, n.parents[need.port], need.cols, (n, cols), ())
    except _MustBeFull:
        raise
    except Untraceable as e:
        raise _MustBeFull(n, e.why) from e


def _ranged(out: Layout, n: Node, cols: Columns) -> None:
    """Require that ranges of the column can be read from n, and hence from the nodes that the column derives
    from."""
    if n.op.remote and n not in out.full:
        raise Untraceable(n, f"ranges of {n.fields[cols[0]].name} come from several workers")
    if n.op.stateful:
        if cols in out.ranged[n]:
            return
        if len(n.parents) > 1:
            raise Untraceable(n, f"ranges of {n.fields[cols[0]].name} come from several states")
        out.ranged[n].add(cols)
        if n in out.full or not n.parents:
            return
    for need in sources(n, cols):
        _ranged(out, n.parents[need.port], need.cols)


def _need(out: Layout, n: Node, cols: Columns, user: tuple[Node, Columns] | None, path: tuple[PathStep, ...]) -> None:
    """Plan that `user` pulls cols through n. `path`: the stateless nodes between n and the user, nearest the user
    last."""
    cols = tuple(dict.fromkeys(cols))  # a repeated column: keys with two values for it have no rows
    if n.op.stateful:
        _require(out, n, cols)
        if any(primary is not None for _, _, primary in path):
            out.kept.add(n)
        if user:
            out.users[n][cols].append(DependentIndex(*user, path))
        return
    for need in n.op.needs(n, cols):
        if need.primary is not None and user:
            out.primaries[n].add(need.primary)
            if need.port == need.primary:
                out.through[n][need.primary].append(DependentIndex(*user,
                                                                   (PathStep(n, need.port, need.primary), *path)))
        if need.find is not None:
            _find(out, n.parents[need.port], need.find)
        _need(out, n.parents[need.port], need.cols, user, (PathStep(n, need.port, need.primary), *path))


def _find(out: Layout, n: Node, cols: Columns) -> None:
    """Require an index by cols over the stored rows of n, whether their keys are present or not. A node on several
    paths is planned once."""
    cols = tuple(dict.fromkeys(cols))
    if (n, cols) in out.findable:
        return
    out.findable.add((n, cols))
    if n.op.stateful:
        out.indexes[n][cols] = None
        out.kept.add(n)
        return
    for need in n.op.needs(n, cols):
        if need.find is not None:
            _find(out, n.parents[need.port], need.find)
        _find(out, n.parents[need.port], need.cols)


def _full_lookups(out: Layout, nodes: list[Node]) -> None:
    """Plan the lookups of nodes that have a full state below: they need complete rows on every side."""
    for n in reversed(nodes):
        below = any(c in out.full or (c in out.full_below and not c.op.stateful) for c, _ in n.children)
        if below or n in out.full:
            out.full_below.add(n)
            for need in n.op.full_needs(n):
                _need(out, n.parents[need.port], need.cols, None, (PathStep(n, need.port, need.primary),))
