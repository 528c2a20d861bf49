"""The program as data: tables, views, names, texts, the recipe, and the origin of a change.

Commands come in; definitions go out.
Nothing here sends a packet.
"""
