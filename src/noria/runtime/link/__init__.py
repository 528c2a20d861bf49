"""The front end's side of one worker: changes in order, questions, results in pieces, blame for lost workers.

Call `Link.change` or `Link.ask`; the worker or its successor answers.
"""
