"""One worker: its step, turns, commits, changes of the program, deferred replies and saved states.

Call `Worker.step` (`worker.py`) with envelopes; it returns replies.
"""
