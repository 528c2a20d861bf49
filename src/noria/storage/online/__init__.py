"""The definitions of tables; ALTER TABLE and new indexes while the table is written.

A definition comes in; a fitted table or a complete index goes out.
Writes continue meanwhile.
"""
