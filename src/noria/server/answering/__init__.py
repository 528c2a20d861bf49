"""Turns a statement into rows, for every front.

    statements  parsed statements, by text and by shape
    bounded_cache  a bounded cache by text
    keys        clients' values as keys
    result_finish  operations on the rows of a lookup
    view_lookups  shared memory, else one upquery for all clients that wait
    hits        lookups of known statements from shared memory only
    first_state_progress  the progress of views without a first state
    racing      the first of several answers
    replies     encoded replies, kept while they are valid
    locks       LOCK TABLES; `followed`: the tables that only a follower writes
    clock       the time of writes that need it; `zeros`: a zero for AUTO_INCREMENT
    zones       TIMESTAMPs of sessions outside UTC
    executor    calls all of these

A bound command comes in; a result set or a write's result goes out.
"""
