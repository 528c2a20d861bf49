"""Jobs over a checkpoint of the base tables.

    snapshot    a checkpoint as DataFrames
    query       a query that no view answers
    bootstrap   the first state of a full node
    index       the entries of an index
    verify      every view recomputed and compared
    progress    how many tasks are done
"""
