"""SELECTs that no view answers: one upquery through operators that keep nothing, or a scan in slices.

A planned query comes in; its rows go out, in pieces where they are many.
Nothing remains in the graph.
"""
