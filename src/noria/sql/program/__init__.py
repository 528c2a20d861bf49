"""Reads, compares and writes a complete program as one text.

    definition_text   prints definitions as SQL
    outline           reads a text to the tables and views that it makes in an empty database
    alteration        computes the ALTER TABLE between two definitions of a table
    view_plans        plans a view's text over a set of tables
    difference        computes the changes between two programs
    current_names     prints a view's text with current names
    references        compares FOREIGN KEYs with the tables that they refer to

`export` prints a running program as a text.
"""
