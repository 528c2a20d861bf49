"""The state of a client besides its statements' rows:

    variables    system variables, and SET
    running      the running statement, and how it is stopped
    transactions/  BEGIN … COMMIT, and the statements within a transaction
    locked_tables, user_locks  LOCK TABLES, GET_LOCK
    requests     one request of a client
    held_transactions  the sessions of transactions over HTTP
    counting     affected rows
    inspect/     SHOW, DESCRIBE, EXPLAIN, information_schema
    context      the state that the next three share
    session_reads  SELECTs that may wait
    writes       INSERT, UPDATE, DELETE
    definitions  CREATE, ALTER, DROP
    own_statements  SET, USE, PREPARE, EXECUTE
    session      one client's session: turns each statement into an outcome
    sessions     all sessions, and one-time sessions for single texts

A text comes in; outcomes go out.
"""
