"""Spark's driver and what it hosts.

    session   a Spark session as noria wants it, and clear words when there can be none
    driver    the driver process: takes jobs from the front end, tells of their progress
    workers   the jobs whose tasks are the workers
"""
