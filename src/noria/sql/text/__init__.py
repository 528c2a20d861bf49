"""Recognises and parses SQL text.

    shape          splits a text into its shape and literals in microseconds; a text of a known shape is not parsed
    comments       MySQL's conditional comments
    tokens         a fast tokenizer for plain texts
    syntax         sqlglot's trees, and the parts of MySQL that its dialect lacks
    trees          fast walks over syntax trees
    literal_rows   INSERT … VALUES with literal rows, by one regular expression
    databases      the databases of a server, and the catalog's names of their tables and views
    refusals       errors for unsupported features: what, where, and what to write instead

A statement's names become the catalog's when it is parsed.
"""
