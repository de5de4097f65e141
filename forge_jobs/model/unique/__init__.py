"""Unique keys of jobs."""
