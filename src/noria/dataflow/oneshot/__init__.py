"""SELECTs that no view answers: an upquery through operators that keep nothing, or a scan in slices.

`OneShot` answers a planned query; large results are sent in chunks. No node is added to the graph.
"""
