"""The front end's side of one worker: changes in order, questions, results in pieces, blame for lost workers.

A request comes in; a reply goes out, from this worker or its successor.
"""
