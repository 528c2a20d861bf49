"""The worker's process: its loop, its frontier, its checkpoints, its kernels, its host.

`worker_main.py` is the entrance.
"""
