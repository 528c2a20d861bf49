"""Processes and their leases: Spark drivers, slots for their jobs, the owner of a data directory."""
