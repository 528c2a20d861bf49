"""Changes tables and views on the workers, and sends the program to a new worker.

`program.py` is the entrance.
"""
