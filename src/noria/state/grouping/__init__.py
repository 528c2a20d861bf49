"""`Groups`: one row for each group with exact accumulators, and aggregates over window frames.

Input: batches of codes with weights.  Output: the changed groups, with their aggregates before and after.
"""
