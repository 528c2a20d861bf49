"""Front ends in processes of their own (`--front-ends K`, K of two and more): several serve one MySQL port.

    client ──► front end (process.py)                         controller (controller.py, within `noria serve`)
                 codec, logins; known reads (replica.py):          sessions, program, links to the workers, Spark
                 hits come from shared memory
                 all else ── one private socket (messages.py) ──►  the session that belongs to the connection

A client's packets come in; kept replies, hits, and outcomes of the controller go out.
"""
