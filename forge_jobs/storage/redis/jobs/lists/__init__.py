"""How the job lists of a Redis store are counted."""
