"""The answer to `Rehearse`: the predicted effects of a change of the program (`inspect/rehearsal.py` computes them)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NodePlan:
    """One node after the change.

    `state`: none | disk | partial | full. `filled`: whether a full state must be built, from `rows` rows of
    tables. `nbytes`: the size of an existing state, or the estimate for one that must be built.
    """

    does: str
    new: bool
    state: str
    why: str
    filled: bool
    rows: int
    nbytes: int


@dataclass(frozen=True)
class ViewPlan:
    name: str
    nodes: tuple[NodePlan, ...]


@dataclass(frozen=True)
class IndexPlan:
    """An index on disk that the views' lookups need and the table lacks."""

    table: str
    columns: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class Rehearsal:
    """The effects of a change. `freed_nodes`, `freed_bytes`: nodes that no view needs any more, and their states.
    `rows`: of each table."""

    views: tuple[ViewPlan, ...]
    indexes: tuple[IndexPlan, ...]
    freed_nodes: int
    freed_bytes: int
    rows: dict[str, int]
