"""Feeds: the changes of a query's rows, kept on disk in order, for programs that keep other data up to date.

`layout.py` describes the file.  Its worker uses `writer.py`, and all readers use `reader.py`.
"""
