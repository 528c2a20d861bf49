"""One worker: packets in, packets out; turns, commits, changes of the program, deferred answers, saved states.

Call `Worker.step` (`worker.py`) with envelopes; it returns replies.
"""
