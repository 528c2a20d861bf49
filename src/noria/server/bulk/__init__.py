"""Work that Spark does for the server: queries that no view answers, first states, loads, backups, verification.

    loading     what a request to load may name
    snapshots   checkpoints that queries share
    indexes     which index the worker wants, and when not any more
    jobs        each kind of job, its bounds and its end
"""
