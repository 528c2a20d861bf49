"""Ticks, upqueries, eviction and re-layout of one worker's graph.

Deltas and keys come in; changed states and rows go out.
Synchronous: nothing is concurrent in here.
"""
