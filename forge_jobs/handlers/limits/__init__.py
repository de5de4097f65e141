"""Limits that handlers declare for their jobs."""
