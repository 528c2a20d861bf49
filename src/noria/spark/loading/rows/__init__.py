"""Reads files and checks their rows: from text, JSON lines and Parquet to rows of a table, without a Spark session.

Input: plain files and the options of a load (`reading`).  Output: Arrow columns, guessed types, and rejects.
"""
