"""Translates SQL text to commands (`commands.py`).  Call `parse.py`; a statement passes through these rooms:

    text          the text's shape, comments and syntax tree; errors for unsupported syntax
    expressions   scalar expressions of the tree, typed
    query         plans a SELECT: a block's clauses in order
    statements    definitions, writes and statements about the session

Keeps true: a room imports only rooms before it.
"""
