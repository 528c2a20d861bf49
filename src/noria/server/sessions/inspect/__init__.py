"""What statements read about the server and the session, and not from tables:

    inspection   SHOW, DESCRIBE, SELECT without FROM
    over_rows    plans over rows in memory
    information  information_schema
    explain      EXPLAIN and SHOW NORIA
"""
