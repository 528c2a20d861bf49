"""What a session's sql_mode changes."""
