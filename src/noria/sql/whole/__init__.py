"""A program as one text.

    written      definitions as the text that makes them
    outline      a text as the tables and views that it makes on nothing
    alteration   what leads from one definition of a table to another
    meaning      what a view's text means over given tables
    difference   what leads from one such program to another
    restated     a view's text with the names of now
    exported     a running program as a text
"""
