"""Scalar expressions.  Read the modules in this order:

    expr        frozen, typed trees
    coerce      converts clients' values to columns' types, as MySQL's strict mode does
    library     functions of values only: argument types, result type, code
    casts       converts codes from one type to another
    evaluate    runs a tree over a batch, compiled to closures (evaluate_numbers, evaluate_text, evaluate_library)
    failures    turns an exception in the evaluation of a row into that row's error
    functions   `call` and `cast` make trees with fitting arguments; `failing` says which can fail
    points      finds the values to which a condition restricts columns

Input: a typed tree and a batch.  Output: one code for each row.
"""
