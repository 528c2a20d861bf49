"""Writes and transactions of clients at one or several workers.

    writes, inserts, group_commit   statements over several workers, and groups of them
    two_phase_commit                prepare, decide and commit at all of them
    transaction_coordinator         the transactions of clients: their requests, snapshots, commits and ends
    deadlock_watch                  deadlocks across workers
    read_your_writes                a session reads what it wrote

Call `RoutedWrites` (`writes.py`) with a routed statement; it reports one outcome.
"""
