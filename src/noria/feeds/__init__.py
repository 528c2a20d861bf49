"""Feeds: the changes of a query's rows, kept on disk in their order, for whoever keeps something else fresh with them.

`layout.py` is the file, `writer.py` its worker's side, `reader.py` that of everybody else.
"""
