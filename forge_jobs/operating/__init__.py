"""Reads and actions for people who operate an installation, one operator under all surfaces."""
