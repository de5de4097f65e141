"""The HTTP API, made from the table of operations."""
