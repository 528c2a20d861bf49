"""`noria follow`: tables that are those of a running MySQL or MariaDB, first loaded and then kept so by its binlog.

    address     mysql://user@host:port/database
    schema      tables of the source, and what they are here
    source      what is asked of the source, and what it must be like
    values      values of the source as Arrow
    binlog      the source's binlog as transactions, in order
    changes     what several transactions come to
    snapshot    the first rows, by Spark's tasks
    target      the server that has the tables
    follower    the whole, in its order

docs/how-to/beside-mysql.md says what is followed and why the result is exact.
"""
