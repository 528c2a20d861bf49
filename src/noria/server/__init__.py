"""The server, in this order:

    outcomes, rows      the messages between fronts and sessions; rows between Arrow and Python
    bulk                the jobs that Spark runs
    answering           from a statement to its rows
    sessions            the state of a client besides its statements
    mysql, http         the fronts: bytes to statements, outcomes to bytes
    node                the process that wires them (settings, listening, tls)

A module imports only from rooms above its own.
"""
