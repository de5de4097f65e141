"""This release beside the one before, which is built from the history of this repository."""
