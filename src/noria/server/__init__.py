"""The server, in this order:

    outcomes, rows      the messages between fronts and sessions; rows between Arrow and Python
    bulk                the jobs that Spark runs
    answering           from a statement to its rows
    sessions            the state of a client besides its statements
    source              reads and writes of Spark's source, and of followers
    mysql, http         the fronts: bytes to statements, outcomes to bytes
    fronts              front ends in processes of their own
    node                the process that wires them (settings, listening, tls)

A room imports only rooms above its own.
"""
