"""All code that uses Spark.

    hosting    the driver process with its session; the jobs that run the workers
    lowering   the second lowering: it translates a plan into a DataFrame
    loading    bulk loads: it converts data files into sorted files of a store
    jobs       batch jobs over a checkpoint: queries, first states, verification
    source     Spark's data source "noria": it reads, writes and streams tables and views

Importing these packages or `hosting.driver` does not import pyspark: the front end has neither it nor a JVM.
"""
