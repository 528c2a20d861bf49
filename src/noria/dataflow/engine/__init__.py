"""Ticks, upqueries, eviction and re-layout of one worker's graph.

`Engine.tick` applies deltas, `Engine.fetch` reads rows by key. All code here is synchronous: nothing runs
concurrently.
"""
