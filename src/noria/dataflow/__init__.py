"""The partially stateful data-flow: graph, operators, ticks, upqueries, eviction, messages and the worker's step.

Call `Worker.step` (`worker/worker.py`). The package is pure: it uses store, views and clock through protocols.
"""
