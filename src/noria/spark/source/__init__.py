"""Noria as a source and a sink of any Spark 4 session: `spark.read.format("noria")`.

    from noria.spark.source import register
    register(spark)                                   # not needed where Spark finds installed sources by itself
    spark.read.format("noria").option("url", "http://127.0.0.1:8080").option("table", "votes").load()

What runs in Spark's processes needs this package, installed, and a server's address; nothing of the server.
docs/how-to/spark.md has the options.
"""

from noria.spark.source.source import NoriaDataSource, register

__all__ = ["NoriaDataSource", "register"]
