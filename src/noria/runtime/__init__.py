"""Where a worker runs and how packets reach it: transport, leases and fences, the in-process runtime."""
