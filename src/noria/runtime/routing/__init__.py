"""Which workers a statement or a read concerns, and how their answers become one.  Pure.

A statement or a key comes in; parts by worker go out.
"""
