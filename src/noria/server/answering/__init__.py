"""Turns a statement into rows, for every front.

    statements  parsed statements, by text and by shape
    keys        clients' values as keys
    shapes      operations on the rows of a lookup
    reads       lookups: shared memory, else one upquery for all who wait
    replies     encoded replies, kept while they are valid
    locks       LOCK TABLES
    clock       the time of writes that need it
    zones       TIMESTAMPs of sessions outside UTC
    executor    all of it together

A bound command comes in; a result set or a write's result goes out.
"""
