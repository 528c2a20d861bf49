"""The joint data-flow graph of all views, and the paths in it.

Keeps true: `Graph.nodes` is in topological order, parents before children; both ends of an edge record it.
"""

from __future__ import annotations

from collections.abc import Sequence

from noria.dataflow.graph.nodes import Node, Operator


class Graph:
    """All nodes, in topological order.  `changes`: how often a node was added, moved or removed."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.next_id = self.changes = 0

    def add(self, op: Operator, parents: Sequence[Node] = ()) -> Node:
        node = Node(self.next_id, op, tuple(parents), fields=op.fields())
        self.next_id += 1
        self.changes += 1
        self.nodes.append(node)
        for port, p in enumerate(parents):
            p.children.append((node, port))
        return node

    def move(self, leaf: Node, parents: Sequence[Node]) -> None:
        """Replace the parents of a leaf. The leaf is the last node afterwards."""
        self.remove(leaf)
        leaf.parents = tuple(parents)
        self.nodes.append(leaf)
        for port, p in enumerate(parents):
            p.children.append((leaf, port))

    def remove(self, node: Node) -> None:
        """Remove a node that has no children."""
        assert not node.children, f"{node} still has children"
        self.changes += 1
        for p in set(node.parents):
            p.children = [(c, port) for c, port in p.children if c is not node]
        self.nodes.remove(node)
        node.users, node.through = {}, {}  # breaks a cycle, so that memory is freed without a collection


def ancestors(n: Node) -> list[Node]:
    """n and all nodes above it, in topological order."""
    seen: dict[Node, None] = {}
    _with_ancestors(n, seen)
    return list(seen)


def local_ancestors(n: Node) -> list[Node]:
    """n and its ancestors on this worker: the search ends at exchanges, which are included."""
    seen: dict[Node, None] = {}
    _with_ancestors(n, seen, across=False)
    return list(seen)


def _with_ancestors(n: Node, seen: dict[Node, None], across: bool = True) -> None:
    for p in n.parents if across or not n.op.remote else ():
        _with_ancestors(p, seen, across)
    seen[n] = None


def nearest(n: Node) -> set[Node]:
    """The closest ancestors that have a state or rows on disk."""
    seen: set[Node] = set()
    for p in n.parents:
        seen |= {p} if p.op.stateful else nearest(p)
    return seen


def used_columns(node: Node) -> frozenset[int] | None:
    """The columns of a node that its children use. None: all."""
    used = [child.op.used_inputs(child) for child, _ in node.children]
    return None if None in used else frozenset(c for w in used if w is not None for c in w)
