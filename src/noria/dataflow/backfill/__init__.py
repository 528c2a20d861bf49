"""First states and indexes over many rows, built in slices between packets, and how the slices are sized.

`Backfills` has all builds; `Backfills.step` runs one slice.
"""
