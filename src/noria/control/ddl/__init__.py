"""Changes tables and views on the workers, and sends the program to a new worker.

One class for each family of statements; `definitions.py` is the entrance.
"""
