"""Several workers as one link: changes of the program at all of them, joining, absence, consistent cuts.

Call `ClusterLink` (`cluster_link.py`).
"""
