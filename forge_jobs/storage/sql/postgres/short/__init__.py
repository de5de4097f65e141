"""Calls made for every job, each in one statement of Postgres."""
