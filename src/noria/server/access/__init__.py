"""Accounts in a server: their file, logins, and the privileges of each session.

In: statements about accounts, and texts that sessions are about to plan.  Out: an error, or nothing.
"""
