"""Processes and their leases: Spark's drivers, slots for their work, who owns a data directory."""
