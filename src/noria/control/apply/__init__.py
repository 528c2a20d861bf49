"""The program as one text: the difference to what runs, its preview, and its change in one commit.

A text comes in; a changed program goes out.
"""
