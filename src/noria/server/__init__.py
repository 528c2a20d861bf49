"""The server, in this order:

    outcomes, rows      what fronts and sessions say to each other; rows between Arrow and Python
    bulk                what Spark does
    answering           from a statement to its rows
    sessions            what a client has beside his statements
    mysql, http         the fronts: bytes to statements, outcomes to bytes
    node                the process that wires them (settings, listening, tls)
"""
