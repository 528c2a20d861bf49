"""Transactions over several statements, at one worker: who may write which row, and who waits for whom.

In: the keys that a statement touches.  Out: permission, a place in a queue, or a deadlock's victim.  Pure.
"""
