"""Finds views whose rows are among another view's rows, and reads them there (`through`).

Input: two views.  Output: a `ReadThrough`, with the key of the lookup, the conditions and the columns; or None.
"""
