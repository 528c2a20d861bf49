"""What a client has beside his statements' rows:

    variables    system variables and what SET may do to them
    running      what is under way, how it is stopped
    transaction  what BEGIN … COMMIT means
    inspection   SHOW, DESCRIBE, SELECT without FROM
    explain      EXPLAIN and SHOW NORIA
    session      one client's session: each statement on its way to an outcome
    sessions     all of them, and texts in a session of their own
"""
