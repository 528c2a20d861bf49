"""Spark jobs over a checkpoint of the base tables.

    snapshot    reads a checkpoint as DataFrames
    query       answers a query that has no view; export and files: writes the answer to files
    bootstrap   computes the first state of a full node
    index       makes the entries of an index
    rewrite     executes a large UPDATE or DELETE; reshard: moves a table to another number of workers
    verify      recomputes every view and compares it
    progress    reports how many tasks are done
`hosting/job_codec.py` lists the jobs that the front end can run.
"""
