"""The symbol table: each distinct string once, under a small id, with the id of its folded twin.

Input: strings, or ids from another process's table.  Output: ids, or the strings of ids.
"""
