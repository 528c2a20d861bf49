"""The command line: one file for each command.  `main.py` registers every module with a function `command`."""
