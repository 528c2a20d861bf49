"""Spark's driver and the workers that it hosts.

    session   makes a Spark session with noria's settings, or reports what is missing
    driver    the driver process: it runs jobs for the front end and reports their progress
    workers   runs each worker as the task of one Spark job

The front end talks to `driver`, through `control/processes/supervisor.py`.
"""
