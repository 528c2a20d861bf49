"""`noria demo`: plays the paper's application on this machine, from raw files to verified views.  See `acts.py`."""
