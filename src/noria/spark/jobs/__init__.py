"""Jobs over a checkpoint of the base tables.

    snapshot    a checkpoint as DataFrames
    query       a query that no view answers
    bootstrap   the first state of a full node
    verify      every view recomputed and compared
    progress    how many tasks are done
"""
