"""Views: ad-hoc ones, readers of named ones, waits for first states, placeholder views.

A SELECT or a view's name comes in; a view to read goes out.
"""
