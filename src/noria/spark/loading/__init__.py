"""Bulk load: converts data files into sorted files that a store only has to ingest.

    rows           reads files and checks their rows
      arrays       converts a JSON array to JSON lines
      files        reads CSV, JSON lines and Parquet in splits, and returns unreadable rows as rejects
      checking     converts the files' rows to rows of a table, and sets bad rows aside
    tasks          the part that runs on Spark
      sources      fetches, unpacks and transcodes the named files (URLs, .gz, JSON arrays) into plain files
      tasks        the Spark tasks: they encode splits and write sorted entries
      ranges       computes bounds that cut each family into parts of nearly equal size
      running      runs Spark jobs of numbered tasks
Call `load.load`; `inferring.infer` for a new table, `merging.rows` for rows that may be stored already.
"""
