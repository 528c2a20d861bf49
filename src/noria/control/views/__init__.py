"""Views: ad-hoc ones, readers of named ones, and waits for first states.

A SELECT or a view's name comes in; a view to read goes out.
"""
