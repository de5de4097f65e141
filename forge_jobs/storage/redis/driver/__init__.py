"""Servers of Redis: which one to ask, over which connection, and what an error means."""
