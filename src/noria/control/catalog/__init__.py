"""The program as data: tables, views, names, texts, the recipe, who asked for a change.

Commands come in; definitions go out.
Nothing here sends a packet.
"""
