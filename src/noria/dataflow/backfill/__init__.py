"""First states and indexes over many rows, built in slices while everything else goes on (sections 4.5 and 5).

A node without state comes in; its state goes out, whole.
Ticks continue meanwhile.
"""
