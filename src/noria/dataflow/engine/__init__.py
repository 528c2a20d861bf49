"""Ticks, upqueries, eviction and re-layout of one worker's graph.

`Engine.tick` applies deltas, `Engine.read` reads rows of a view, `Engine.relayout` adapts all states to a changed
graph. No two calls run concurrently.
"""
