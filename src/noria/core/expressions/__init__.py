"""Expressions in one room, in this order:

    expr        trees: frozen, typed
    coerce      what strict mode makes of a client's value for a column
    library     functions that are functions of their values only: what each takes, gives, and its code
    casts       from one type to another, over codes
    evaluate    a tree over a batch, once compiled to closures (evaluate_numbers, evaluate_text, evaluate_library)
    failures    an exception while a row is evaluated is the error of that row
    functions   typing: `call` and `cast` make trees whose arguments fit, and tell which can fail
"""
