"""Spark's driver and the workers that it hosts.

    session   makes a Spark session with noria's settings, and explains why there can be none
    driver    the driver process: runs jobs of the front end, and reports their progress
    workers   the jobs whose tasks are the workers
"""
