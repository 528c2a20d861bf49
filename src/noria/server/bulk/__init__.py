"""Work that Spark does for the server: queries that no view answers, first states, loads, backups, verification.

    loading     the files that a request may name
    snapshots   checkpoints that queries share
    indexes     indexes that a worker requests
    jobs        each kind of job, its bounds and its end

A request comes in; steps of progress and a result go out.
"""
