"""A base table on disk: its families, counters, lookups, files of rows, and which worker has a row.

Codes of rows come in; keys and packed rows go out, and back.
"""
