"""Everything that speaks to Spark: the driver process, the workers' barrier job, batch jobs over snapshots.

Importing this package or `spark.driver` does not import pyspark: the front end has neither it nor a JVM.
"""
