"""Figures: ``make bench``, ``make bench-peers``, ``make bench-limits``."""
