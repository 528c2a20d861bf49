"""Reads, compares and writes a complete program as one text.

    written      prints definitions as SQL
    outline      reads a text to the tables and views that it makes in an empty database
    alteration   computes the ALTER TABLE between two definitions of a table
    meaning      plans a view's text over a set of tables
    difference   computes the changes between two programs
    restated     prints a view's text with current names
    references   compares FOREIGN KEYs with the tables that they refer to

`exported` prints a running program as a text.
"""
