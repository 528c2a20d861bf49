"""One worker: packets in, packets out, in turns; commits, changes of the program, deferred answers, saved states.

Envelopes come in; replies go out.
`worker.py` is the entrance.
"""
