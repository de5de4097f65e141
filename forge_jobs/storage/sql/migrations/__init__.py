"""Numbered schema changes, forward only, as SQL text per database."""
