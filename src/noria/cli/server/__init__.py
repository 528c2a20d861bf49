"""Commands that run a server or another process of it, and commands that work on the files of a stopped server.

Input: a data directory and settings.  Output: a process that serves, changed files, or a report.
"""
