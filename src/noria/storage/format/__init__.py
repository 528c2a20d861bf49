"""Rows, keys, the catalog and checksums as bytes.  Pure.

Codes come in; bytes go out, and back.
No file is opened here.
"""
