"""Locks of transactions over several statements, at one worker: who may write which row, and who waits for whom.

Call `LockTable.acquire` with the keys of a statement, and `LockTable.wait` for a locked one.  Pure.
"""
