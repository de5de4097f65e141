"""Tests that need Debian's packages: ``make debian``."""
