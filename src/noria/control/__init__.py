"""The program of tables and views, supervision of the Spark driver, epochs and leases."""
