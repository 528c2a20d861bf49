"""Everything that speaks to Spark.

    hosting    the driver: a child process with a session, the workers' jobs, batch jobs
    lowering   the second lowering: a plan as a DataFrame
    loading    files to sorted files of a store
    jobs       what is computed over a checkpoint: queries, first states, verification

Importing these packages or `hosting.driver` does not import pyspark: the front end has neither it nor a JVM.
"""
