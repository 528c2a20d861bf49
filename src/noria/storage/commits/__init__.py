"""Commits: exactly once, over several workers in two phases; bulk files, the delta log and saved states.

Staged effects come in; one synced commit goes out.
"""
