"""Memory of states and views: a file or a reserve of addresses that grows in place, and atomic access to its words.

Input: a size, and perhaps a file.  Output: int64 arrays that never move, also for other processes.
"""
