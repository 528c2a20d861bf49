"""The command line: one file for each command.  `main.py` registers every module with a function `command`.

    server     commands that run a server or work on its files
    client     commands that ask a running server
`interrupts`, `options` and `progress` are shared by the commands.
"""
