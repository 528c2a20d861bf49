"""From SQL text to commands (`commands.py`).  `parse.py` is the entrance; a statement passes through these rooms:

    text          its shape, comments and syntax tree; what is refused, and how that is said
    expressions   scalar expressions of the tree, typed
    query         a SELECT as a plan: a block's clauses one after the other
    statements    definitions, writes, what sessions say; they use what is before

Keeps true: a room imports only rooms before it.
"""
