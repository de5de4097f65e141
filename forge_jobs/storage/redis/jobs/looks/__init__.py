"""Reads of many jobs at once: lists, counts, and what the list of problems looks at."""
