"""Expressions, in this order:

    expr        trees: frozen, typed
    coerce      clients' values to columns' types, as strict mode does
    library     functions of values only: argument types, result type, code
    casts       conversions from one type to another, over codes
    evaluate    runs a tree over a batch, compiled to closures (evaluate_numbers, evaluate_text, evaluate_library)
    failures    turns an exception in the evaluation of a row into that row's error
    functions   typing: `call` and `cast` make trees with fitting arguments, and say which can fail

A typed tree comes in; codes of a batch's rows go out.
"""
