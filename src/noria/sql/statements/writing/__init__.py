"""INSERT, REPLACE, UPDATE, DELETE and TRUNCATE:

    writes           those that name their rows by values or a condition
    selected_writes  those whose rows a SELECT finds
    table_copies     CREATE TABLE … LIKE and … AS SELECT

A syntax tree and the catalog come in; a binder of the command goes out.
"""
