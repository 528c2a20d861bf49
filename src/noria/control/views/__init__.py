"""Views: ad-hoc ones, readers of named ones, what holds what, who waits for a first state.

A SELECT or a view's name comes in; a view to read goes out.
"""
