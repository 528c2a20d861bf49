"""`noria demo`: the paper's application from raw files to verified views, on this machine, in minutes."""
