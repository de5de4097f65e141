"""Calls about one job, or few: edits, families, places."""
