"""Front ends in processes of their own (`--front-ends K`, K of two and more): several serve one MySQL port.

    client ──► front end (process.py)                         controller (controller.py, within `noria serve`)
                 codec, logins; known reads (replica.py):          sessions, program, links to the workers, Spark
                 hits come from shared memory
                 other requests ── a socket (messages.py) ──►      the connection's session

A client's packets come in; kept replies, hits, and outcomes of the controller go out.
"""
