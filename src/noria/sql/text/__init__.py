"""A text recognised and parsed.

    shape          a text as its shape and its literals, in microseconds: what is known by its shape is not parsed
    comments       MySQL's conditional comments
    syntax         sqlglot's trees, with what its dialect lacks for us
    literal_rows   INSERT … VALUES with literal rows, by one regular expression
    refusals       one way to say what is not there, with where and what instead
"""
