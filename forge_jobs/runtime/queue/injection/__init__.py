"""Injection into one run."""
