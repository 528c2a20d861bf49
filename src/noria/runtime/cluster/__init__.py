"""Several workers as one link: the program at all of them, joining, absence, consistent cuts.

`sharded.py` is the entrance.
"""
