"""Reuse beyond equality: the plans of a program, rewritten so that they keep less together than each alone (§5.1).

    share       the plans of a set of views, as a pure function of the set: no view is before another
    one_copy    copies that are kept of the same rows are one; then
    prefix      joins begin alike, in whatever order they are written; then
    STRATEGIES  in their order, each a file with its example; all are about groups, which are what programs keep twice
    through     how a view is read in the reader of another: what a lookup finds there, less some columns and rows;
                joins in any order

Equal plan nodes are one graph node already (`lowering/`), so a strategy has done its work when it has made nodes
equal: it gives plan nodes for plan nodes, of the same rows in the same columns.  Keeps true:

* a rewritten plan is ordinary MIR with the rows of the plan that it stands for, errors included;
* what would be partial in a program of one view is partial: states are joined with others of their kind only
  (`Fullness`), and keys trace through what stands between;
* no state has more groups than those it stands for have together;
* what is filled stays: views that are in use are no part of the set, but others may stand on what these have.
"""

from noria.plan.reuse.sharing import STRATEGIES, Alone, Shared, Strategy, related, share, sources
from noria.plan.reuse.standing import Sharing

__all__ = ["STRATEGIES", "Alone", "Shared", "Sharing", "Strategy", "related", "share", "sources"]
