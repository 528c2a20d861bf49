"""Translates all statements except queries over tables and views to commands.

    definitions         CREATE TABLE, CREATE VIEW, DROP; alterations: ALTER TABLE, CREATE INDEX, DROP INDEX
    writes              INSERT, REPLACE, UPDATE, DELETE, TRUNCATE
    session             SET, SHOW, USE, transactions, KILL; show_conditions: the WHERE of SHOW
    without_from        SELECTs of constants, variables and functions of the session
    placeholder_views   views without FROM, and views that read these

`information` plans SELECTs from information_schema; `database` checks the names of databases.
"""
