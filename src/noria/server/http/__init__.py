"""The HTTP interface (`app.py` lists its paths).

    gate                        which requests are answered, by their heads
    bodies, parameters, wire    request bodies, parameters and answers as JSON and Arrow
    metrics                     numbers for Prometheus
    feeds, source, following    the paths of feeds, of Spark's source, and of followers
    app, server                 all paths; connections

A request comes in; an answer goes out.
"""
