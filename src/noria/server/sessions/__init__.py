"""The state of a client besides its statements' rows:

    variables    system variables, and SET
    running      the running statement, and how it is stopped
    transaction  BEGIN … COMMIT
    counting     affected rows
    inspection   SHOW, DESCRIBE, SELECT without FROM
    over_rows    plans over rows in memory
    information  information_schema
    explain      EXPLAIN and SHOW NORIA
    session      one client's session: turns each statement into an outcome
    sessions     all sessions, and one-time sessions for single texts

A text comes in; outcomes go out.
"""
