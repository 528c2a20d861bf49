"""The graph as data: nodes and edges, the layout of states and indexes, ranges of keys, protocols of store and
views.

`layout.plan` maps a graph to its layout. No module of this package runs a tick; `engine/` does.
"""
