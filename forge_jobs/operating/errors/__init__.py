"""Failures in groups, as operators read them."""
