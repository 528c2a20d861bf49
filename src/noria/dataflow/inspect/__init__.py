"""Descriptions and checks of a worker's graph: rendering, validation, rehearsal, export.

The functions read an engine and return data or text. None of them changes a state.
"""
