"""Tokens of rate limits: how a pod asks for them, and how many."""
