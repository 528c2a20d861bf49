"""The sending of changes to the worker, one at a time.

The catalog and a link come in; acknowledged changes go out.  The code that sends a change updates the catalog.
"""
