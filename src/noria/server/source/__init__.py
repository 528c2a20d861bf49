"""The server's part of the Spark source (`spark/source/`): reads of one snapshot, and writes that are applied once."""
