"""Changes of tables and views, sent to the workers, and how a new worker gets the program.

`program.py` is the entrance.
"""
