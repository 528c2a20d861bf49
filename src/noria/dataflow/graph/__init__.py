"""The graph as data: nodes and edges, what the layout decides for each node, ranges of keys, protocols of the world.

Planned views come in; a layout goes out.
Nothing here runs a tick.
"""
