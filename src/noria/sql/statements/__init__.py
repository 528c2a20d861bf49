"""Everything that is not a query.

    definitions       CREATE TABLE, CREATE VIEW, DROP
    writes            INSERT, REPLACE, UPDATE, DELETE
    session           SET, SHOW, USE, transactions, KILL; show_conditions: the WHERE of SHOW
    without_from      SELECTs of constants, variables and functions of the session
    database          the one database that there is
"""
