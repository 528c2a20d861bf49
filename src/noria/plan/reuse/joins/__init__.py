"""Strategies for joins: one order, one beginning, and one copy of the rows that several views look up.

Input: plans and the chains in them (`chains`).  Output: for each replaced node, the node instead of it.
"""
