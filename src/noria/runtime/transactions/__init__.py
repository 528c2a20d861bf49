"""Statements over several workers: planned, committed in two phases, grouped, and visible to their own session.

Call `RoutedWrites` (`writes.py`) with a routed statement; it reports one outcome.
"""
