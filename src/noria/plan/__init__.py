"""Relational plans (`mir`), views (`view`), rewrites (`optimizer`, `reuse`) and the lowering to operators (`lower`)."""
