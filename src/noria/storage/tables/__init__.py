"""A base table on disk: its families, counters, lookups, files of rows, and the owners of its rows.

Codes of rows come in; keys and packed rows go out, and the reverse.
"""
