"""The history of failures, in groups."""
