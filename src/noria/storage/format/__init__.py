"""Encodes rows, keys, the catalog and checksums as bytes.  Pure.

Codes come in and bytes go out, and the reverse.
No file is opened here.
"""
