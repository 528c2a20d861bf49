"""The program as one text: its difference from the running program, its preview, and its change in one commit.

A text comes in; a changed program goes out.
"""
