"""From SQL text to commands: shapes of texts, parsing, name resolution and typing, plans of queries."""
