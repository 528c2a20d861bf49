"""`noria follow`: tables that mirror a running MySQL or MariaDB (the *source*).  A load copies the first rows, then the
source's binlog keeps them up to date.

    address     parses mysql://user@host:port/database
    schema      translates the source's tables to noria's
    source      queries the source: its settings, its binlog's end
    values      converts the source's values to Arrow
    binlog      reads the source's binlog as transactions, in order
    statements  decides what a statement in the binlog means
    changes     computes the net change of several transactions
    snapshot    loads the first rows by Spark's tasks; loading: in a process of its own
    target      sends requests to the server that has the tables
    follower    runs these steps in order

docs/how-to/beside-mysql.md says what is followed and why the result is exact.
"""
