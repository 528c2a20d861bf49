"""The front end's side of one worker: ordered changes, questions, large results, and blame for a worker's death.

Call `Link.change` or `Link.ask`; the worker or its successor answers.
"""
