"""The part of a load that runs on Spark: it unpacks files, encodes splits, sorts entries and gathers rejects.

Input: the files' names and a `Job`.  Output: sorted entries by range, parcels of rows, and one file of rejects.
"""
