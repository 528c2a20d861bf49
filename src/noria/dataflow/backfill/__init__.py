"""First states and indexes over many rows, built in slices between packets, and how the slices are sized.

`Builds` has all builds; `Builds.step` runs one slice.
"""
