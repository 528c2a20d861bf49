"""HTTP: health, metrics, graph, views, SQL, bulk inserts, load and verify."""
