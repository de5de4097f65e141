"""The history of failures, as every store keeps it."""
