"""Spark looks for sources in installed packages whose names begin with pyspark_: so it knows "noria" by itself."""

from noria.spark.source import NoriaDataSource as DefaultSource

__all__ = ["DefaultSource"]
