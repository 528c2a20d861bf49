"""The worker's process: its loop, frontier, checkpoints, kernels and host.

Call `run_worker` (`worker_main.py`).
"""
