"""Unique keys: who holds them, and what a request of a key does."""
