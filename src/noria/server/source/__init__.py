"""What the Spark source (`spark/source/`) asks of a server: reads of one snapshot, writes that are done once."""
