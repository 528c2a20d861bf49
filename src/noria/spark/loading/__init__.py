"""Bulk load: files to sorted files that a store only ingests.

    sources    from what is named (URLs, compressed files, arrays of JSON) to plain files
    arrays     a JSON array as JSON lines
    files      CSV, JSON lines and Parquet in splits, with what could not be read
    checking   rows of files as rows of a table, bad rows set aside
    tasks      what Spark's tasks do: encode splits, write sorted entries
    ranges     bounds that cut each family into parts of about as many entries
    running    jobs of numbered tasks
    load       the job
"""
