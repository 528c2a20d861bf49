"""What a worker's graph is and does, for people and for checks: rendering, validation, rehearsal, export.

A graph comes in; data and text go out.
Nothing here changes a state.
"""
