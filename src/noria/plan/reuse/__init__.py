"""Reuse beyond equality: rewrites the plans of a program so that together they need less state (§5.1).

    share       rewrites the plans of a set of views, as a pure function of the set: their order does not matter
    one_copy    (joins) merges kept copies of the same rows; then
    prefix      (joins) reorders joins so that they begin alike; then
    STRATEGIES  run in order, one file each, with an example; all merge groupings: `groups`, and `joins.join_order`
    through     (lookups) reads a view from the reader of another: fewer columns and rows of a lookup there; joins in
                any order

Equal plan nodes are one graph node (`lowering/`).  So a strategy only has to make nodes equal: it replaces plan
nodes by others with the same rows in the same columns.  Keeps true:

* a rewritten plan is ordinary MIR with the same rows as the original, including errors;
* a state that is partial in a program of one view stays partial: only states of the same kind are merged
  (`Fullness`), and keys trace through the nodes between;
* no state has more groups than the states that it replaces have together;
* filled states stay: views in use are not rewritten, but others may use their states.
"""

from noria.plan.reuse.shared_nodes import SharedNodes
from noria.plan.reuse.sharing import (
    STRATEGIES,
    SharingResult,
    Strategy,
    UnsharedLayout,
    related,
    share,
    sources,
)

__all__ = ["STRATEGIES", "SharedNodes", "SharingResult", "Strategy", "UnsharedLayout", "related", "share", "sources"]
