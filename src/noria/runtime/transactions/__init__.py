"""Statements over several workers: prepared and decided as one, grouped, and read by their own session.

A statement comes in; one outcome goes out.
"""
