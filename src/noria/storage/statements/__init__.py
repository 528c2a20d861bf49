"""INSERT, UPDATE, DELETE and TRUNCATE as effects on staged tables.

A statement comes in; changed keys and rows go out.
Nothing is committed here.
"""
