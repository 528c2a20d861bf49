"""Noria as a source and a sink of any Spark 4 session: `spark.read.format("noria")`.

    from noria.spark.source import register
    register(spark)                                   # not needed if Spark finds installed sources by itself
    spark.read.format("noria").option("url", "http://127.0.0.1:8080").option("table", "votes").load()

Spark's processes need this package and a server's address; the server's files are optional.
docs/how-to/spark.md has the options.
"""

from noria.spark.source.source import NoriaDataSource, register

__all__ = ["NoriaDataSource", "register"]
