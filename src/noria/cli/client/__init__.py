"""Commands that ask a running server over HTTP, and print its answers.

Input: the server's URL; SQL texts, files to load, or a database to follow.  Output: rows, progress, or files.
"""
