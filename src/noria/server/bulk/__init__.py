"""Work that Spark does for the server: queries that no view answers, first states, loads, backups, verification.

    loading     what a request to load may name
    snapshots   checkpoints that queries share
    jobs        each kind of job, its bounds and its end
"""
